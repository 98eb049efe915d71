//! Times with a unit.

use std::time::Duration;

use ata_wire::limits::MAX_TIME;

use crate::failure::Failure;

/// Parses times such as `1ms`, `0.1ms` and `2 s`.
pub(crate) fn parse_time_unit(text: &str) -> Result<Duration, Failure> {
    let wrong = || Failure::usage(format!("time unit '{text}': expected a time such as 1ms, 0.1ms, 10us or 1s"));
    let split = text.find(|c: char| c.is_alphabetic()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let seconds = match unit.trim() {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        "ns" => 1e-9,
        _ => return Err(wrong()),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let duration = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
    if duration.is_zero() || duration > MAX_TIME { Err(wrong()) } else { Ok(duration) }
}
