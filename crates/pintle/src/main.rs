//! The binary `pintle`.

use std::process::ExitCode;

/// The server makes many small allocations of the same sizes from several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    pintle::command_line(std::env::args_os())
}
