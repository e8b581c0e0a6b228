//! Which instructions the kernels use.

use crate::Precision;

/// An instruction level. Results differ between levels in the last bits, and at bf16 and int8 also with
/// the dot products that a machine has, see [`Level::has_dot`]; [`Encoder::device`] names them all.
///
/// [`Encoder::device`]: crate::Encoder::device
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Plain Rust; every machine.
    Portable,
    /// NEON and its fused multiply-add: every aarch64. Faster than plain Rust at f32 alone.
    Neon,
    /// AVX2 and FMA: x86-64 from about 2013.
    Avx2,
    /// AVX-512 F, BW, DQ and VL: x86-64 servers from about 2017. Dot products of bf16 and of bytes are
    /// used where they are there, see [`Level::has_dot`].
    Avx512,
}

impl Level {
    /// Environment variable that forces a lower level: `portable`, `neon`, `avx2` or `avx512`. Tests use it
    /// to cover every level on one machine.
    pub const VARIABLE: &'static str = "NIGHTMILL_CPU_LEVEL";

    /// The levels of this machine, lowest first.
    pub fn available() -> Vec<Self> {
        let mut levels = vec![Self::Portable];
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            levels.push(Self::Neon);
        }
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                levels.push(Self::Avx2);
            }
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if avx512 && levels.contains(&Self::Avx2) {
                levels.push(Self::Avx512);
            }
        }
        levels
    }

    /// The best level of this machine, or the one the environment asks for.
    ///
    /// # Errors
    /// A message if the environment names a level that does not exist or that this machine lacks.
    pub fn choose() -> Result<Self, String> {
        let available = Self::available();
        let best = available.last().copied().unwrap_or(Self::Portable);
        let Some(wanted) = std::env::var_os(Self::VARIABLE).filter(|w| !w.is_empty()) else {
            return Ok(best);
        };
        let names: Vec<&str> = available.iter().map(|level| level.name()).collect();
        available
            .iter()
            .copied()
            .find(|level| wanted.to_str() == Some(level.name()))
            .ok_or_else(|| {
                format!(
                    "{}={} is not a level of this machine; it has {}",
                    Self::VARIABLE,
                    wanted.to_string_lossy(),
                    names.join(", ")
                )
            })
    }

    /// Calling instructions that are not there would be undefined behaviour: whoever packs weights for a
    /// level asks first.
    pub(super) fn assert_available(self) {
        assert!(
            Self::available().contains(&self),
            "this machine has no {}",
            self.name()
        );
    }

    /// Whether this level has an instruction for dot products at this precision. Without it the
    /// precision works too, no faster than f32.
    pub fn has_dot(self, precision: Precision) -> bool {
        #[cfg(target_arch = "x86_64")]
        match (self, precision) {
            (_, Precision::F32) => true,
            (Self::Avx512, Precision::Bf16) => is_x86_feature_detected!("avx512bf16"),
            (Self::Avx512, Precision::Int8) => is_x86_feature_detected!("avx512vnni"),
            (Self::Avx2, Precision::Int8) => is_x86_feature_detected!("avxvnni"),
            _ => false,
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            precision == Precision::F32
        }
    }

    /// The name, as in the environment variable and the manifest.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}
