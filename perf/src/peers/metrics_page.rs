//! What Tarn tells at its `tarn.admin.listener`: one value of its page of metrics, in the text format of Prometheus.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::broker_client::bad;

/// The longest wait for the page.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest page that is taken.
const PAGE_BYTES_MAX: u64 = 16 << 20;

/// The value of a metric without labels.
pub(crate) fn metric(address: &str, name: &str) -> io::Result<f64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut page = String::new();
    stream.take(PAGE_BYTES_MAX).read_to_string(&mut page)?;
    value(&page, name).ok_or_else(|| bad(&format!("{address} tells no {name}")))
}

fn value(page: &str, name: &str) -> Option<f64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    page.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let page = "HTTP/1.1 200 OK\r\n\r\n# TYPE flushes summary\nflushes{quantile=\"0.5\"} 9\nflushes_sum 4.5\nflushes_count 12\n";
        assert_eq!((value(page, "flushes_count"), value(page, "flushes_sum")), (Some(12.0), Some(4.5)));
        assert_eq!((value(page, "flushes"), value(page, "flushes_c")), (None, None));
    }
}
