//! Links as users write them.

use ata_scheduler::Topology;
use ata_types::{CHUNK_VALUES, DIFFERENCE_BITS, ExchangeChoice, WireFormat};
use serde::{Deserialize, Serialize};

use crate::error::SettingError;
use crate::links::{Bandwidth, Links};

/// The units of rates, in bytes per second: bits are decimal, as network devices count them.
const RATES: [(&str, f64); 7] =
    [("Kbit", 125.0), ("Mbit", 125e3), ("Gbit", 125e6), ("B/s", 1.0), ("KB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9)];

/// The units of sizes, in bytes.
const SIZES: [(&str, f64); 7] = [
    ("B", 1.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1024.0 * 1024.0),
    ("GiB", 1024.0 * 1024.0 * 1024.0),
];

/// The units of times, in seconds.
const TIMES: [(&str, f64); 3] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];

/// The bits of a value of a compact gradient: blocks of small values take less than 16. With 16 samples a task, CNNs of 0.16, 2.2 and 11
/// million values have 15, 13 and 13, and ResNet-20 has 14. With one sample, it is 10.
const COMPACT_BITS: f64 = 14.0;

/// The links that gradients and parameters travel on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinksSpec {
    /// The rate of a worker's link in each direction, such as `1Gbit` or `100MB/s`, or `20Mbit:100Mbit` from the worker and to it.
    pub link: String,
    /// The rate of the coordinator's link, likewise; a worker's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_link: Option<String>,
    /// The round trip between a worker and the coordinator, such as `60ms`; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<String>,
    /// The size of the parameters as f32, such as `100MB`.
    pub model_bytes: String,
    /// The representation of gradients and parameters on the wire.
    #[serde(default)]
    pub wire: WireFormat,
    /// The number of bits of a value of a compact difference, if iterations are rounds of local steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference_bits: Option<u32>,
    /// The way in which workers exchange vectors.
    #[serde(default)]
    pub exchange: ExchangeChoice,
    /// The unit of the laws' times, such as `1ms`.
    #[serde(default = "default_time_unit")]
    pub time_unit: String,
}

/// Returns the unit that real runs use for their laws.
fn default_time_unit() -> String {
    "1ms".into()
}

impl LinksSpec {
    /// Creates links of this rate for a model of this size, with defaults for the rest.
    pub fn new(link: String, model_bytes: String) -> Self {
        Self {
            link,
            head_link: None,
            round_trip: None,
            model_bytes,
            wire: WireFormat::default(),
            difference_bits: None,
            exchange: ExchangeChoice::default(),
            time_unit: default_time_unit(),
        }
    }

    /// Returns the links, with rates per unit of the laws' times.
    pub fn links(&self) -> Result<Links, SettingError> {
        let unit_s = quantity("links.time_unit", &self.time_unit, &TIMES, "a time, such as 1ms")?;
        let rate = |setting: &str, text: &str| {
            let (up, down) = text.split_once(':').unwrap_or((text, text));
            let rate = |text| quantity(setting, text, &RATES, "a rate, such as 1Gbit or 100MB/s, or 20Mbit:100Mbit");
            Ok(Bandwidth { up: rate(up)?, down: rate(down)? }.times(unit_s))
        };
        let worker = rate("links.link", &self.link)?;
        let head = self.head_link.as_ref().map_or(Ok(worker), |text| rate("links.head_link", text))?;
        let round_trip = |text: &String| quantity("links.round_trip", text, &TIMES, "a time, such as 60ms");
        let latency = self.round_trip.as_ref().map_or(Ok(0.0), round_trip)? / unit_s / 2.0;
        let bytes = quantity("links.model_bytes", &self.model_bytes, &SIZES, "a size, such as 100MB or 8MiB")?;
        // The bytes of a gradient, and of new parameters, for each byte of f32 parameters.
        if let Some(bits) = self.difference_bits {
            let is_possible = DIFFERENCE_BITS.contains(&bits);
            SettingError::check("links.difference_bits", &bits, is_possible, "a whole number from 2 to 16")?;
        }
        let bits = self.difference_bits.map_or(COMPACT_BITS, f64::from);
        let (up, down) = match self.wire {
            WireFormat::F32Exact => (1.0, 1.0),
            // Parameters take 8 bits per value; about one block in a hundred takes more.
            WireFormat::Compact => (bits / 32.0, 0.25),
        };
        let whole = self.difference_bits.is_some();
        let topology = match self.exchange {
            ExchangeChoice::Auto if !whole => Topology::Shards,
            ExchangeChoice::Auto | ExchangeChoice::Star => Topology::Star,
            // A simulation follows the formula, so shards cannot be forced.
            ExchangeChoice::Shards => return Err(SettingError::new("links.exchange", "shards", "auto or star")),
        };
        let chunk = 1.0 / (bytes / 4.0 / CHUNK_VALUES as f64).ceil();
        Ok(Links { worker, head, latency, up_bytes: up * bytes, down_bytes: down * bytes, topology, whole, chunk })
    }
}

/// Parses a positive time in seconds, as in `20ms`; errors name the `setting` and what is `expected`.
pub fn time_s(setting: &str, text: &str, expected: &str) -> Result<f64, SettingError> {
    quantity(setting, text, &TIMES, expected)
}

fn quantity(setting: &str, text: &str, units: &[(&str, f64)], expected: &str) -> Result<f64, SettingError> {
    let digits = text.trim().find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.trim().len());
    let (number, name) = text.trim().split_at(digits);
    let unit = units.iter().find(|(unit, _)| *unit == name);
    let (Ok(number), Some((_, unit))) = (number.trim().parse::<f64>(), unit) else {
        return Err(SettingError::new(setting, text, expected));
    };
    let value = number * unit;
    SettingError::check(setting, &text, value.is_finite() && value > 0.0, expected)?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_sizes_have_units() {
        for (link, model_bytes, time_unit, rate, bytes) in [
            ("8Mbit", "4MB", "1ms", 1e3, 4e6),
            ("1 Gbit", "1KiB", "1s", 125e6, 1024.0),
            ("2.5MB/s", "12 B", "10us", 25.0, 12.0),
            ("3Kbit", "1GB", "1s", 375.0, 1e9),
        ] {
            let mut spec = LinksSpec { time_unit: time_unit.into(), ..LinksSpec::new(link.into(), model_bytes.into()) };
            let links = spec.links().unwrap();
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b;
            assert!(
                close(links.worker.up, rate) && links.worker.down == links.worker.up && links.head == links.worker,
                "{links:?}"
            );
            assert!(close(links.up_bytes, bytes) && links.down_bytes == links.up_bytes, "{links:?}");
            (spec.wire, spec.head_link) = (WireFormat::Compact, Some("16Gbit".into()));
            let links = spec.links().unwrap();
            assert!(close(links.up_bytes, bytes * 14.0 / 32.0) && close(links.down_bytes, bytes / 4.0), "{links:?}");
            assert!(links.head.up > links.worker.up);
        }
    }

    #[test]
    fn directions_may_differ_round_trips_take_time_and_vectors_take_the_shorter_way() {
        let mut spec = LinksSpec::new("20Mbit:100Mbit".into(), "8MB".into());
        (spec.round_trip, spec.wire) = (Some("60ms".into()), WireFormat::Compact);
        let links = spec.links().unwrap();
        assert_eq!((links.worker, links.head), (Bandwidth { up: 2500.0, down: 12500.0 }, links.worker));
        assert_eq!(
            (links.latency, links.up_bytes, links.topology, links.whole),
            (30.0, 3.5e6, Topology::Shards, false)
        );
        assert_eq!(links.chunk, 1.0 / 62.0, "of 32,768 values");
        spec.difference_bits = Some(4);
        assert_eq!(spec.links().unwrap(), Links { up_bytes: 1e6, topology: Topology::Star, whole: true, ..links });
        spec.wire = WireFormat::F32Exact;
        assert_eq!(spec.links().unwrap().up_bytes, 8e6);
        (spec.difference_bits, spec.exchange) = (None, "star".parse().unwrap());
        assert_eq!(spec.links().unwrap().topology, Topology::Star);
        spec.exchange = ExchangeChoice::Shards;
        assert!(spec.links().unwrap_err().to_string().contains("auto or star"), "the formula decides");
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let good = LinksSpec::new("1Gbit".into(), "1MB".into());
        let of = |change: fn(&mut LinksSpec)| {
            let mut spec = good.clone();
            change(&mut spec);
            spec.links().unwrap_err().to_string()
        };
        for (error, expected) in [
            (of(|spec| spec.link = "1MB".into()), "links.link: 1MB, expected a rate, such as 1Gbit or 100MB/s"),
            (of(|spec| spec.head_link = Some("fast".into())), "links.head_link: fast, expected a rate"),
            (of(|spec| spec.link = "1Mbit:2".into()), "links.link: 2, expected a rate"),
            (of(|spec| spec.link = "1Mbit:2Mbit:3Mbit".into()), "links.link: 2Mbit:3Mbit, expected a rate"),
            (of(|spec| spec.difference_bits = Some(17)), "links.difference_bits: 17, expected a whole number from 2"),
            (of(|spec| spec.round_trip = Some("0ms".into())), "links.round_trip: 0ms, expected a time, such as 60ms"),
            (of(|spec| spec.model_bytes = "0MB".into()), "links.model_bytes: 0MB, expected a size"),
            (of(|spec| spec.model_bytes = "1e999GB".into()), "links.model_bytes: 1e999GB, expected a size"),
            (of(|spec| spec.model_bytes = "-1MB".into()), "links.model_bytes: -1MB, expected a size"),
            (of(|spec| spec.time_unit = "1".into()), "links.time_unit: 1, expected a time, such as 1ms"),
        ] {
            assert!(error.contains(expected), "{error}");
        }
    }
}
