use super::*;
use crate::driver::tests::config;
use crate::reduction::VectorReply;
use std::path::Path;
use std::task::{Context, Waker};

const SESSION: SessionToken = SessionToken([1; 16]);

const VECTOR: VectorId = VectorId(7);

fn service() -> (Service, mpsc::Receiver<DriverCommand>) {
    let (driver, commands) = mpsc::channel(8);
    (Service::new(driver, &config(Path::new(""), "cnn:widths=1/1/1/1", "uta", 1, 1)), commands)
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
