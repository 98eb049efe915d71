//! A byzantine member of an exchange.

use std::net::SocketAddr;
use std::sync::Arc;

use ata_net::{Security, SendAhead, serve};
use ata_wire::{
    Connection, FramedSet, GradientHeader, GradientUpload, ParameterPart, Reader, Receipt, SessionToken, SetHeader,
    SetProducer, TransferRouter, Transfers, connect,
};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, once};
use tonic::Status;

const GARBAGE: Bytes = Bytes::from_static(b"garbage");

/// A proxy between an honest worker and its peers. Data that they send to it arrives, and data that it passes on to them is replaced with a
/// few bytes and a correct checksum.
#[derive(Clone)]
pub struct Tamper(SocketAddr);

impl Tamper {
    /// Listens at `address` in place of the worker at `worker`.
    pub async fn listen(address: SocketAddr, worker: SocketAddr) {
        let listener = TcpListener::bind(address).await.expect("the port is free");
        let service = TransferRouter::alone(Self(worker));
        let ahead = SendAhead::up_to(1 << 30);
        tokio::spawn(serve(listener, Arc::new(Security::Open), ahead, service, std::future::pending()));
    }

    async fn connection(&self) -> Result<Connection, Status> {
        let endpoint = format!("http://{}", self.0).parse().expect("an address");
        connect(&endpoint).await.map_err(|error| Status::unavailable(error.to_string()))
    }
}

impl Transfers for Tamper {
    async fn parameters(
        &self,
        session: SessionToken,
        reader: Reader,
    ) -> Result<impl Stream<Item = FramedSet> + Send + 'static, Status> {
        let mut sets = self.connection().await?.parameters(session, None).await?;
        let part = sets.next().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let ParameterPart::Set(header) = part else { return Err(Status::internal("no header")) };
        // The peers' connections stay open.
        std::mem::forget(reader.peer().keep_open());
        let stripe = header.stripe;
        let mut producer = SetProducer::new(SetHeader { stripe: None, ..header });
        let set = producer.set().stripe(stripe);
        (0..header.chunks).for_each(|_| producer.push(GARBAGE));
        Ok(once(set))
    }

    async fn submit_gradient(&self, mut upload: GradientUpload) -> Result<Receipt, Status> {
        std::mem::forget(upload.peer().keep_open());
        let header = GradientHeader::try_from(upload.header().await?)?;
        let (chunks, passed) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Ok(Some(chunk)) = upload.chunk(|_| {}).await {
                if chunks.send(chunk).await.is_err() {
                    return;
                }
            }
        });
        let sent = self.connection().await?.submit_gradient(header, ReceiverStream::new(passed)).await;
        sent.map_err(|error| Status::unavailable(error.to_string()))
    }
}
