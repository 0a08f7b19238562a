//! tarn-image
