//! The program `ata` with the built-in models and policies.

fn main() -> std::process::ExitCode {
    ata::main(ata::Extensions::default())
}
