//! tarn-perf
