//! The `nightmill` program: parse, run, exit code. Everything else is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    nightmill::cli::Cli::of_process().run()
}
