#![allow(clippy::all, clippy::unwrap_used)]
use std::time::{Duration, Instant};
use tarn_runtime::{socket::{self, Then}, *};
static DUMPED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
fn dump(n: usize) {
    if DUMPED.swap(true, std::sync::atomic::Ordering::SeqCst) { return; }
    std::fs::write("/sys/kernel/tracing/instances/transport/tracing_on", "0").ok();
    for t in std::fs::read_dir("/proc/self/task").unwrap() {
        let p = t.unwrap().path();
        let g = |f: &str| std::fs::read_to_string(p.join(f)).unwrap_or_default().trim().to_owned();
        let comm = g("comm");
        if comm == format!("srv{n}") || comm == format!("cli{n}") {
            eprintln!("== {} {comm} state {:?} wchan {} syscall {} stack {}", p.display(), g("stat").split(' ').nth(2).map(str::to_owned), g("wchan"), g("syscall"), g("stack"));
            let fd = g("syscall"); let mut w = fd.split(' '); w.next(); let fd = w.next().and_then(|x| i64::from_str_radix(x.trim_start_matches("0x"), 16).ok()).unwrap_or(-1);
            eprintln!("ring fd {fd}: {}", std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default());
            for k in 1..6 { for d in [fd - k, fd + k] { let l = std::fs::read_link(format!("/proc/self/fd/{d}")).map(|x| x.display().to_string()).unwrap_or_default(); if l.contains("io_uring") { eprintln!("near ring fd {d}: {}", std::fs::read_to_string(format!("/proc/self/fdinfo/{d}")).unwrap_or_default()); } } }
        }
    }
    eprintln!("ss: {}", String::from_utf8_lossy(&std::process::Command::new("cat").arg("/proc/net/tcp").output().unwrap().stdout).lines().filter(|l| l.contains(" 01 ")).take(40).collect::<Vec<_>>().join("\n"));
}
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
        let beat = std::sync::Arc::new(std::sync::Mutex::new(Some(Instant::now()))); let b2 = beat.clone();
        let w = std::thread::spawn(move || loop { std::thread::sleep(Duration::from_millis(200)); let t = *b2.lock().unwrap(); match t { None => break, Some(t) if t.elapsed() > Duration::from_secs(3) => { dump(n); } _ => {} } });
        for i in 0..200 {
            let t = Instant::now(); *beat.lock().unwrap() = Some(t);
            s.write_all(&b[..100], Then::Push).await.unwrap();
            let r = timeout(Duration::from_secs(10), s.read(&mut b)).await;
            if r.is_err() { eprintln!("pair {n} op {i}: SERVER LOST"); break; }
            worst = worst.max(t.elapsed());
            if t.elapsed() > Duration::from_secs(3) { eprintln!("pair {n} op {i}: {:?} CLIENT LOST", t.elapsed()); }
        }
        *beat.lock().unwrap() = None; drop(w);
        worst
    }).unwrap();
    let w = c.join();
    h.join();
    if w > Duration::from_secs(1) { eprintln!("pair {n} worst {w:?}"); }
}
fn all(mode: u8) { let t: Vec<_> = (0..8).map(|n| std::thread::spawn(move || pair(n, mode))).collect(); for t in t { t.join().unwrap(); } }
#[test] fn plain() { for _ in 0..4 { all(0) } }
#[test] fn with_timer() { for _ in 0..4 { all(1) } }
