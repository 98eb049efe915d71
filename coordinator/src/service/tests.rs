use super::*;
use crate::driver::{Presence, Reply, SessionUploads, Uploads};
use ata_learn::Units;
use ata_types::{Iteration, WorkerId};
use ata_wire::{DataSpec, RunSpec};
use std::task::{Context, Waker};

const SESSION: SessionToken = SessionToken([1; 16]);

const LEASE: LeaseId = LeaseId(7);

fn service() -> (Service, mpsc::Receiver<Command>) {
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

fn room() -> Room {
    let (mut uploads, (reply, _)) = (Uploads::new(1), oneshot::channel());
    let units = Units::first(&[1.0], 1);
    uploads.wait(SESSION, WorkerId::from_slot(0), LEASE, units, reply);
    let (_, place) = uploads.next().expect("a place");
    SessionUploads::default().room(Presence::new(), place)
}

fn header() -> GradientHeader {
    GradientHeader {
        session: SESSION,
        vector: None,
        iteration: Iteration::FIRST,
        computed: None,
        maxima: vec![1.0],
        units: vec![0],
        units_crc32c: 0,
        saturated: 0,
        vanished: 0,
    }
}

/// Has a call wait for room; returns what it is answered with.
fn announced(call: Pin<&mut impl Future>, commands: &mut mpsc::Receiver<Command>) -> Reply {
    assert!(call.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let Ok(Command::Announce { reply, .. }) = commands.try_recv() else { panic!("it was not announced") };
    reply
}

/// A call may be dropped at any moment, such as when it was just given room and does not know it yet.
#[tokio::test]
async fn a_call_that_is_dropped_fails_its_lease() {
    for is_answered in [true, false] {
        let ((service, mut commands), header) = (service(), header());
        let mut call = Box::pin(service.announce(&header, LEASE, Peer::default()));
        let reply = announced(call.as_mut(), &mut commands);
        if is_answered {
            assert!(reply.send(Ok(room())).is_ok());
        }
        drop(call);
        tokio::task::yield_now().await;
        let command = commands.try_recv();
        assert!(matches!(command, Ok(Command::LeaseFailed { lease: LEASE, .. })), "answered: {is_answered}");
    }
}

#[tokio::test]
async fn a_gradient_that_is_refused_is_no_failure() {
    let ((service, mut commands), header) = (service(), header());
    let mut call = Box::pin(service.announce(&header, LEASE, Peer::default()));
    let reply = announced(call.as_mut(), &mut commands);
    assert!(reply.send(Err(UploadRefusal::NotHeld { reason: "it ended".into() })).is_ok());
    assert!(call.await.is_err());
    tokio::task::yield_now().await;
    assert!(commands.try_recv().is_err());
}
