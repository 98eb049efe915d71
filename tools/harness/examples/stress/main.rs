//! Measures what hostile, broken and idle peers cost a coordinator. Each program has a module, which says what it takes.
//!
//! cargo build --release --workspace --examples && target/release/examples/stress NAME

mod broken;
mod broken_workers;
mod flapping;
mod hostile_connections;
mod idle_workers;
mod many_names;
mod mutated_frames;

#[tokio::main]
async fn main() {
    let all: Vec<String> = std::env::args().skip(1).collect();
    let (name, arguments) = all.split_first().map_or(("", &[][..]), |(name, arguments)| (name, arguments));
    match name {
        "broken_workers" => broken_workers::run(arguments).await,
        "flapping" => flapping::run(arguments).await,
        "hostile_connections" => hostile_connections::run(arguments).await,
        "idle_workers" => idle_workers::run(arguments).await,
        "many_names" => many_names::run(arguments).await,
        "mutated_frames" => mutated_frames::run(arguments).await,
        _ => {
            eprintln!(
                "stress NAME, where NAME is broken_workers, flapping, hostile_connections, idle_workers, many_names or mutated_frames"
            );
            std::process::exit(64);
        }
    }
}
