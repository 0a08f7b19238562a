//! tarn-runtime
