use super::*;
use crate::driver::tests::config;
use std::path::Path;
use std::task::{Context, Waker};

/// A call may be dropped at any moment, for example before it knows whether it may send. A vector that is refused does not fail.
#[tokio::test]
async fn a_call_that_is_dropped_fails_its_vector() {
    for is_refused in [true, false] {
        let (driver, mut commands) = mpsc::channel(8);
        let service = Service::new(driver, &config(Path::new(""), "cnn:widths=1/1/1/1", "uta", 1, 1));
        let header = GradientHeader { vector: VectorId(7), ..GradientHeader::default() };
        let upload = GradientUpload::from_body(tonic::body::Body::empty(), Peer::default());
        let mut call = Box::pin(service.receive_vector(upload, header));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let Ok(DriverCommand::AnnounceVector { reply, .. }) = commands.try_recv() else { panic!("not announced") };
        if is_refused {
            assert!(reply.send(Err(Ok(Receipt::NotHeld { reason: "it ended".into() }))).is_ok());
            assert!(matches!(call.await, Ok(Receipt::NotHeld { .. })));
        } else {
            drop(call);
        }
        tokio::task::yield_now().await;
        let has_failed = matches!(commands.try_recv(), Ok(DriverCommand::VectorFailed { vector: VectorId(7), .. }));
        assert_eq!(has_failed, !is_refused);
    }
}
