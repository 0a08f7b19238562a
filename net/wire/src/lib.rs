//! tarn-wire
