//! Fuzzes join tokens.
#![no_main]

use ata_net::JoinToken;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(token) = text.parse::<JoinToken>() {
        assert_eq!(token.to_string().parse::<JoinToken>().expect("it was parsed before"), token);
    }
});
