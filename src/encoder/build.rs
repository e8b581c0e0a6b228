//! Compiles the kernels of the packed graph, where there is CUDA; everything else needs nothing from here.

use std::path::PathBuf;
use std::process::Command;

/// Architectures that get code of their own: Ampere (A100, A10), Ada (L4, L40), Hopper (H100, H200). Later cards translate the
/// last one's intermediate code when they load it.
const ARCHITECTURES: [&str; 4] = ["80", "86", "89", "90"];

fn main() {
    println!("cargo::rerun-if-changed=gpu/kernels.cu");
    for variable in ["NVCC", "CUDA_HOME", "CUDA_PATH"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    if std::env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let nvcc = set("NVCC")
        .or_else(|| set("CUDA_HOME").map(|home| home.join("bin/nvcc")))
        .or_else(|| set("CUDA_PATH").map(|home| home.join("bin/nvcc")))
        .unwrap_or_else(|| "nvcc".into());
    let out = set("OUT_DIR").unwrap_or_default().join("kernels.fatbin");
    let mut command = Command::new(&nvcc);
    command
        .args(["-fatbin", "-O3", "-std=c++17", "-o"])
        .arg(&out);
    for architecture in ARCHITECTURES {
        let code = format!("arch=compute_{architecture},code=sm_{architecture}");
        command.args(["-gencode", &code]);
    }
    command.args(["-gencode", "arch=compute_90,code=compute_90"]);
    command.arg("gpu/kernels.cu");
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!(
            "{} failed ({status}) on gpu/kernels.cu",
            nvcc.display()
        )),
        Err(error) => fail(&format!(
            "{}: {error}; set CUDA_HOME to the folder of CUDA, or NVCC to its compiler",
            nvcc.display()
        )),
    }
}

fn fail(why: &str) -> ! {
    println!("cargo::error={why}");
    std::process::exit(1)
}
