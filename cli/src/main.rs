//! The program `ata` with the built-in models and policies.

/// The allocator for musl, whose own one has a single lock for all threads and returns freed memory to the system at once.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    ata::main(ata::Extensions::default())
}
