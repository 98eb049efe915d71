//! The command `ata token`: the coordinator's join token.

use std::net::{Ipv4Addr, SocketAddr};

use ata_net::{Credentials, JoinToken, KeyPin, Role};
use serde_json::{Value, json};

use crate::args::{RotateArgs, TokenArgs, TokenCommand};
use crate::failure::{Failure, require};
use crate::output::{note, print_json, print_text};
use crate::settings::{DEFAULT_PORT, advertised, credentials_folder};

pub(crate) fn run(command: &TokenCommand) -> Result<(), Failure> {
    match command {
        TokenCommand::Show(args) => {
            let credentials = open(args)?;
            show(args, &credentials, served(&credentials)?)
        }
        TokenCommand::Rotate(args) => rotate(args),
    }
}

fn rotate(RotateArgs { token, key }: &RotateArgs) -> Result<(), Failure> {
    let credentials = open(token)?;
    let mut pin = served(&credentials)?;
    if *key {
        require(
            pin == credentials.tls_files().pin()?,
            || "--key: the coordinator has a key of your own (--tls-key), which only you can replace",
        )?;
        credentials.rotate_key()?;
        pin = credentials.tls_files().pin()?;
    }
    credentials.rotate(if token.status { Role::Status } else { Role::Worker })?;
    note!("the new one; a running coordinator knows it already, and sessions that began with the old one go on:");
    show(token, &credentials, pin)
}

/// Returns the key of the coordinator as of its last start.
fn served(credentials: &Credentials) -> Result<KeyPin, Failure> {
    let own = credentials.tls_files().pin()?;
    Ok(credentials.last_token(Role::Worker).map_or(own, |last| last.pin))
}

/// Opens the credentials of a coordinator. They are made only for one that is to be reached under a given address.
fn open(args: &TokenArgs) -> Result<Credentials, Failure> {
    let folder = credentials_folder(args.credentials.as_ref())?;
    require(args.advertise.is_some() || Credentials::existing(&folder)?.is_some(), || {
        format!(
            "{} holds no credentials: `ata coordinator` makes them when it starts; to make them before, add --advertise HOST:PORT",
            folder.display()
        )
    })?;
    Ok(Credentials::open(&folder)?)
}

fn show(args: &TokenArgs, credentials: &Credentials, key: KeyPin) -> Result<(), Failure> {
    if args.status {
        let secret = credentials.secret(Role::Status)?.to_string();
        return copied(args, &json!({ "secret": secret }), &secret);
    }
    let token = token(args, credentials, key)?;
    let JoinToken { address, pin, .. } = &token;
    let join = json!({ "address": address.to_string(), "key_sha256": pin.to_string(), "token": token.to_string() });
    copied(args, &join, &token.to_string())
}

/// Prints a secret for a file or a pipe, whatever the form of the log.
fn copied(args: &TokenArgs, as_json: &Value, secret: &str) -> Result<(), Failure> {
    if args.json { print_json(as_json) } else { print_text(&format!("{secret}\n")) }
}

fn token(args: &TokenArgs, credentials: &Credentials, key: KeyPin) -> Result<JoinToken, Failure> {
    let last = credentials.last_token(Role::Worker);
    let port = last.as_ref().and_then(|last| last.address.port_u16()).unwrap_or(DEFAULT_PORT);
    let address = match (&args.advertise, last) {
        (None, Some(last)) => last.address,
        (chosen, _) => {
            let address = advertised(chosen.as_deref(), SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
            address.parse().map_err(Failure::usage)?
        }
    };
    Ok(credentials.token(Role::Worker, address, key)?.0)
}
