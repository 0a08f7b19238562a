//! tarn-mirror
