use super::*;
use crate::reduction::VectorReply;
use ata_types::VectorId;
use ata_wire::{DataSpec, RunSpec};
use std::task::{Context, Waker};

const SESSION: SessionToken = SessionToken([1; 16]);

const VECTOR: VectorId = VectorId(7);

fn service() -> (Service, mpsc::Receiver<DriverCommand>) {
    let (driver, commands) = mpsc::channel(8);
    let (data, format) = (DataSpec::Generated { seed: 1 }, WireFormat::F32Exact);
    let run = RunSpec {
        model: String::new(),
        parameters: 1,
        seed: 1,
        budget: 1,
        task_batch: 1,
        skip_bad_samples: false,
        test_data: data.clone(),
        data,
        format,
    };
    let service = Service {
        driver,
        parameters: run.parameters,
        format,
        data_transfers: Arc::new(Semaphore::new(1)),
        probes: Arc::new(Probes::new(String::new(), run)),
        timeout: HELLO_TIMEOUT,
    };
    (service, commands)
}

fn header() -> GradientHeader {
    GradientHeader {
        session: SESSION,
        vector: VECTOR,
        maxima: vec![1.0],
        units: vec![0],
        units_crc32c: 0,
        saturated: 0,
        vanished: 0,
    }
}

/// Returns an upload that is about to send its chunks.
fn upload() -> GradientUpload {
    GradientUpload::from_body(tonic::body::Body::empty(), Peer::default())
}

/// Polls a call until it waits for the driver's reply. Returns the sender of the reply.
fn announced(call: Pin<&mut impl Future>, commands: &mut mpsc::Receiver<DriverCommand>) -> VectorReply {
    assert!(call.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let Ok(DriverCommand::AnnounceVector { reply, .. }) = commands.try_recv() else { panic!("it was not announced") };
    reply
}

/// A call may be dropped at any moment, for example before it knows whether it may send. A vector that is refused does not fail.
#[tokio::test]
async fn a_call_that_is_dropped_fails_its_vector() {
    for is_refused in [true, false] {
        let (service, mut commands) = service();
        let mut call = Box::pin(service.receive_vector(upload(), header()));
        let reply = announced(call.as_mut(), &mut commands);
        if is_refused {
            assert!(reply.send(Err(Ok(Receipt::NotHeld { reason: "it ended".into() }))).is_ok());
            assert!(matches!(call.await, Ok(Receipt::NotHeld { .. })));
        } else {
            drop(call);
        }
        tokio::task::yield_now().await;
        let has_failed = matches!(commands.try_recv(), Ok(DriverCommand::VectorFailed { vector: VECTOR, .. }));
        assert_eq!(has_failed, !is_refused);
    }
}
