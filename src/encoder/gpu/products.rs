//! Linear layers by cuBLASLt: chosen once for one number of rows, run as often as wanted.
//!
//! An algorithm that sums parts of a row in an order of its own choice is not taken: what a row becomes must not depend on
//! the run. With the number of rows fixed, the choice is the same in every run on one card and library.
#![allow(
    unsafe_code,
    reason = "cuBLASLt is a library of C; its descriptors are owned here, and pointers are of buffers that their owner keeps"
)]

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::cuda_backend::cudarc::cublaslt::{result, sys};
use candle_core::cuda_backend::cudarc::driver::{CudaSlice, CudaStream, DevicePtr};

use crate::{Activation, EncodeError};

/// Bytes that an algorithm may use beside its matrices; as much as NVIDIA advises for Hopper.
const WORKSPACE: usize = 32 << 20;

fn failed(what: &str, error: impl std::fmt::Debug) -> EncodeError {
    EncodeError::Device(format!("cuBLASLt {what}: {error:?}"))
}

/// A handle and a workspace for one stream: with either shared between streams, results are not the same in each run.
#[derive(Debug)]
pub(super) struct Products {
    handle: sys::cublasLtHandle_t,
    workspace: CudaSlice<u8>,
    stream: Arc<CudaStream>,
}

/// What was chosen so far in this process, by the kind of card and what was asked: all lanes do the same product by the same
/// algorithm, though the library might answer otherwise to the second.
static CHOSEN: Mutex<Vec<(String, ProductShape, sys::cublasLtMatmulAlgo_t)>> =
    Mutex::new(Vec::new());

/// What a product is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProductShape {
    pub rows: usize,
    pub inputs: usize,
    pub outputs: usize,
    /// Whether outputs are added to what is there.
    pub added: bool,
    /// None, ReLU or GELU with the hyperbolic tangent.
    pub activation: Activation,
}

/// A product and the algorithm that does it.
#[derive(Debug)]
pub(super) struct Product {
    description: sys::cublasLtMatmulDesc_t,
    weight: sys::cublasLtMatrixLayout_t,
    from: sys::cublasLtMatrixLayout_t,
    to: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
    added: bool,
    /// What was chosen, for the manifest: sizes, and the attributes of the algorithm by the library's numbers.
    pub name: String,
}

impl Drop for Product {
    fn drop(&mut self) {
        // SAFETY: made in `Products::plan`, and destroyed once, here. What fails is a leak of a few bytes of the host.
        unsafe {
            let _ = result::destroy_matmul_desc(self.description);
            for layout in [self.weight, self.from, self.to] {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        let _ = self.stream.context().bind_to_thread();
        // SAFETY: made in `Products::new`, and destroyed once, here; the stream has nothing of it under way, since whoever
        // runs products waits for their end.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// The last part of a row of cuBLASLt's outputs: a bias, and an activation.
fn epilogue(activation: Activation) -> Option<sys::cublasLtEpilogue_t> {
    match activation {
        Activation::None => Some(sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS),
        Activation::Relu => Some(sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU_BIAS),
        Activation::GeluTanh => Some(sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_BIAS),
        Activation::Gelu | Activation::Silu | Activation::Tanh => None,
    }
}

impl Products {
    pub fn new(stream: Arc<CudaStream>) -> Result<Self, EncodeError> {
        // A handle is of the card that is current, and nothing else has made this one so.
        let bound = stream.context().bind_to_thread();
        bound.map_err(|e| EncodeError::Device(e.to_string()))?;
        let handle = result::create_handle().map_err(|e| failed("handle", e))?;
        let workspace = stream.alloc_zeros::<u8>(WORKSPACE);
        match workspace {
            Ok(workspace) => Ok(Self {
                handle,
                workspace,
                stream,
            }),
            Err(error) => {
                // SAFETY: made above, and used by nobody.
                let _ = unsafe { result::destroy_handle(handle) };
                Err(EncodeError::Device(error.to_string()))
            }
        }
    }

    /// Chooses how a product is done: `y = x W^T + bias`, all of them row after row, W (outputs, inputs).
    pub fn plan(&self, shape: ProductShape, bias: u64) -> Result<Product, EncodeError> {
        let half = sys::cudaDataType_t::CUDA_R_16F;
        let (rows, inputs, outputs) = (shape.rows, shape.inputs, shape.outputs);
        let layout = |rows: usize, columns: usize| {
            // cuBLASLt counts down columns: a row of ours is a column of its matrices.
            result::create_matrix_layout(half, rows as u64, columns as u64, rows as i64)
                .map_err(|e| failed("layout", e))
        };
        let description = result::create_matmul_desc(
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            sys::cudaDataType_t::CUDA_R_32F,
        );
        let mut product = Product {
            description: description.map_err(|e| failed("description", e))?,
            weight: std::ptr::null_mut(),
            from: std::ptr::null_mut(),
            to: std::ptr::null_mut(),
            algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
            added: shape.added,
            name: String::new(),
        };
        product.weight = layout(inputs, outputs)?;
        product.from = layout(inputs, rows)?;
        product.to = layout(outputs, rows)?;
        let Some(epilogue) = epilogue(shape.activation) else {
            return Err(failed("activation", shape.activation));
        };
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        // CUBLAS_OP_T of cublas_api.h.
        let transposed = 1i32;
        product.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &transposed)?;
        product.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
        product.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias)?;
        let kind = self.stream.context().name();
        let kind = kind.map_err(|e| EncodeError::Device(e.to_string()))?;
        let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = chosen
            .iter()
            .find(|(card, of, _)| *card == kind && *of == shape);
        let known = known.map(|(.., algorithm)| *algorithm);
        product.algorithm = match known {
            Some(algorithm) => algorithm,
            None => {
                let algorithm = self.choose(&product)?.algo;
                chosen.push((kind, shape, algorithm));
                algorithm
            }
        };
        drop(chosen);
        product.name = format!("{inputs}x{outputs}:{}", named(&product.algorithm));
        Ok(product)
    }

    fn choose(
        &self,
        product: &Product,
    ) -> Result<sys::cublasLtMatmulHeuristicResult_t, EncodeError> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let preference = result::create_matmul_pref().map_err(|e| failed("preference", e))?;
        let (workspace, none): (usize, u32) = (WORKSPACE, 0);
        // SAFETY: the preference was made above and is destroyed below; values are read before the calls return, and are as
        // wide as their attributes are documented to be; layouts and description live in `product`.
        unsafe {
            let set = |attribute, value: *const c_void, bytes| {
                result::set_matmul_pref_attribute(preference, attribute, value, bytes)
            };
            let chosen = set(
                Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const workspace).cast(),
                size_of::<usize>(),
            )
            .and_then(|()| {
                set(
                    Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                    (&raw const none).cast(),
                    size_of::<u32>(),
                )
            })
            .and_then(|()| {
                result::get_matmul_algo_heuristic(
                    self.handle,
                    product.description,
                    product.weight,
                    product.from,
                    product.to,
                    product.to,
                    preference,
                )
            });
            let _ = result::destroy_matmul_pref(preference);
            chosen.map_err(|e| failed("has no algorithm for a product", e))
        }
    }

    /// Puts a product on the stream. All three are pointers of the device, of as many numbers as its shape says.
    ///
    /// # Safety
    /// The matrices must be there until the stream has passed this product, and nobody else may write them.
    pub unsafe fn run(
        &self,
        product: &Product,
        weight: u64,
        from: u64,
        to: u64,
    ) -> Result<(), EncodeError> {
        let bound = self.stream.context().bind_to_thread();
        bound.map_err(|e| EncodeError::Device(e.to_string()))?;
        let (one, before) = (1.0f32, f32::from(u8::from(product.added)));
        let (workspace, _no_event) = self.workspace.device_ptr(&self.stream);
        // SAFETY: descriptors live in `product`; scalars are read before the call returns (host pointers are the default);
        // the caller answers for the matrices.
        let ran = unsafe {
            result::matmul(
                self.handle,
                product.description,
                (&raw const one).cast(),
                (&raw const before).cast(),
                weight as *const c_void,
                product.weight,
                from as *const c_void,
                product.from,
                to as *const c_void,
                product.to,
                to as *mut c_void,
                product.to,
                &raw const product.algorithm,
                workspace as *mut c_void,
                WORKSPACE,
                self.stream.cu_stream().cast(),
            )
        };
        ran.map_err(|e| failed("product", e))
    }
}

impl Product {
    fn set<T>(
        &self,
        attribute: sys::cublasLtMatmulDescAttributes_t,
        value: &T,
    ) -> Result<(), EncodeError> {
        // SAFETY: the description lives in `self`, and the value is read before the call returns.
        let set = unsafe {
            result::set_matmul_desc_attribute(
                self.description,
                attribute,
                std::ptr::from_ref(value).cast(),
                size_of::<T>(),
            )
        };
        set.map_err(|e| failed("attribute", e))
    }
}

/// All that tells an algorithm from others, by the library's numbers: algorithm, tile, parts of a sum, how they are summed,
/// order of tiles, option, stages, inner shape, cluster.
fn named(algorithm: &sys::cublasLtMatmulAlgo_t) -> String {
    use sys::cublasLtMatmulAlgoConfigAttributes_t as Attribute;
    let number = |(attribute, bytes): (Attribute, usize)| {
        let (mut value, mut written) = (0u32, 0usize);
        // SAFETY: the algorithm is a value of the library's own; no attribute is wider than 32 bits, and a narrower one is
        // the lower half of a number on the processors that CUDA is for.
        let _ = unsafe {
            sys::cublasLtMatmulAlgoConfigGetAttribute(
                algorithm,
                attribute,
                (&raw mut value).cast(),
                bytes,
                &raw mut written,
            )
        };
        value.to_string()
    };
    let attributes = [
        (Attribute::CUBLASLT_ALGO_CONFIG_ID, 4),
        (Attribute::CUBLASLT_ALGO_CONFIG_TILE_ID, 4),
        (Attribute::CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4),
        (Attribute::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4),
        (Attribute::CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4),
        (Attribute::CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4),
        (Attribute::CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
        (Attribute::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2),
        (Attribute::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2),
    ];
    attributes.map(number).join("/")
}

/// The library's version.
pub(super) fn version() -> usize {
    // SAFETY: takes nothing and changes nothing.
    unsafe { sys::cublasLtGetVersion() }
}
