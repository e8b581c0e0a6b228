//! The `nightmill` program: parse, run, exit code. Everything else is in the library.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    nightmill::cli::Cli::parse().run()
}
