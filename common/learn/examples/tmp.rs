use ata_learn::*;
use std::time::Instant;
fn main() {
    let t: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    limit_threads(t);
    let model = builtin_model("cnn").unwrap();
    let cpu = DeviceChoice::Cpu.open().unwrap();
    let mut tr = model.trainer(&TrainerConfig { learning_rate: 1e-3, seed: 1 }, &cpu);
    let mut l = model.learner(&cpu);
    let p = tr.parameters();
    let t = Instant::now();
    for _ in 0..20 {
        l.load(&p);
    }
    println!("load {:?}", t.elapsed() / 20);
    for b in [4u32, 8, 16, 32, 64, 128] {
        let mut d = TaskData::new(Dataset::Synthetic(Synthetic::new(Split::Train, 1)), 1, 4, b);
        let bt = Instant::now();
        let batch = d.batch(1, 0).unwrap();
        let bt = bt.elapsed();
        l.gradient(&batch).unwrap();
        let mut best = 1e9f64;
        let mut sum = 0.;
        for _ in 0..20 {
            let x = l.gradient(&batch).unwrap().busy.as_secs_f64();
            best = best.min(x);
            sum += x;
        }
        println!("B {b} min {:.2} ms mean {:.2} batch {:?}", best * 1e3, sum / 20. * 1e3, bt);
    }
    let g = vec![0.01f32; p.len()];
    tr.step(&g);
    let t = Instant::now();
    for _ in 0..20 {
        tr.step(&g);
    }
    println!("step {:?}", t.elapsed() / 20);
    let t = Instant::now();
    for _ in 0..20 {
        tr.parameters();
    }
    println!("parameters {:?}", t.elapsed() / 20);
    let t = Instant::now();
    tr.evaluate(&Dataset::Synthetic(Synthetic::new(Split::Test, 1))).unwrap();
    println!("eval {:?}", t.elapsed());
}
