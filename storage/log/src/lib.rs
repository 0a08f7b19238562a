//! tarn-log
