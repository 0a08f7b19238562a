#![allow(clippy::all, clippy::unwrap_used)]
use std::time::{Duration, Instant};
use tarn_runtime::{socket::{self, Then}, *};
fn pair(n: usize, mode: u8) {
    let l = socket::Listener::bind("127.0.0.1:0".parse().unwrap(), 8).unwrap();
    let a = l.local_addr().unwrap();
    let h = spawn_core(CoreSpec { cpu: None, name: format!("srv{n}") }, move || async move {
        let (mut s, _) = l.accept().await.unwrap();
        let t = spawn(Queue::Network, async move {
        let mut b = [0u8; 128];
        loop {
            let r = if mode & 1 == 1 { futures_lite::future::or(s.read(&mut b), async { sleep(Duration::from_secs(600)).await; Ok(0) }).await } else { s.read(&mut b).await };
            let k = r.unwrap();
            if k == 0 { break; }
            s.write_all(&b[..k], Then::Push).await.unwrap();
        } });
        t.await;
    }).unwrap();
    let c = spawn_core(CoreSpec { cpu: None, name: format!("cli{n}") }, move || async move {
        let mut s = socket::connect("127.0.0.1", a.port(), Duration::from_secs(10)).await.unwrap();
        let mut b = [0u8; 128];
        let mut worst = Duration::ZERO;
        for i in 0..200 {
            let t = Instant::now();
            s.write_all(&b[..100], Then::Push).await.unwrap();
            let r = timeout(Duration::from_secs(10), s.read(&mut b)).await;
            if r.is_err() { eprintln!("pair {n} op {i}: SERVER LOST"); break; }
            worst = worst.max(t.elapsed());
            if t.elapsed() > Duration::from_secs(3) { eprintln!("pair {n} op {i}: {:?} CLIENT LOST", t.elapsed()); }
        }
        worst
    }).unwrap();
    let w = c.join();
    h.join();
    if w > Duration::from_secs(1) { eprintln!("pair {n} worst {w:?}"); }
}
fn all(mode: u8) { let t: Vec<_> = (0..8).map(|n| std::thread::spawn(move || pair(n, mode))).collect(); for t in t { t.join().unwrap(); } }
#[test] fn plain() { for _ in 0..4 { all(0) } }
#[test] fn with_timer() { for _ in 0..4 { all(1) } }
