//! Values that are in several places.
use layout::DType;
use shopfloor_device::{DeviceError, Place, Remote, UnifiedBuffer};
use std::any::Any;
use std::sync::{Arc, Mutex};
use tensor::Tensor;

struct Far(Mutex<Vec<u8>>);

impl Remote for Far {
    fn bytes(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }
    fn upload(&self, from: &[u8]) -> Result<(), DeviceError> {
        self.0.lock().unwrap().copy_from_slice(from);
        Ok(())
    }
    fn download(&self, to: &mut [u8]) -> Result<(), DeviceError> {
        to.copy_from_slice(&self.0.lock().unwrap());
        Ok(())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct Somewhere(&'static str, bool);

impl Place for Somewhere {
    fn name(&self) -> &str {
        self.0
    }
    fn shares_host(&self) -> bool {
        self.1
    }
    fn allocate(&self, bytes: u64) -> Result<Arc<dyn Remote>, DeviceError> {
        Ok(Arc::new(Far(Mutex::new(vec![0; bytes as usize]))))
    }
}

fn moved(b: &UnifiedBuffer) -> (u64, u64) {
    (b.moved().to_device, b.moved().to_host)
}

#[test]
fn only_readers_of_stale_places_move_bytes() {
    let there: Arc<dyn Place> = Arc::new(Somewhere("there", false));
    let mut b = UnifiedBuffer::from(Tensor::from_f32(&[2, 3], &[1.0; 6]).unwrap());
    assert_eq!(b.valid_in(), ["host"]);
    let first = b.at(&there).unwrap();
    b.at(&there).unwrap();
    b.host().unwrap();
    assert_eq!((moved(&b), b.valid_in().len()), ((24, 0), 2));
    // Written on the host: the other place is stale, its memory used again.
    let seen = b.host().unwrap();
    b.host_mut().unwrap().set_f64(0, 5.0);
    assert_eq!(b.valid_in(), ["host"]);
    assert_eq!((seen.get_f64(0), b.host().unwrap().get_f64(0)), (1.0, 5.0));
    assert!(Arc::ptr_eq(&first, &b.at(&there).unwrap()));
    assert_eq!(moved(&b), (48, 0));
    // Written there: the host is stale.
    let made = there.allocate(24).unwrap();
    made.upload(&2f32.to_le_bytes().repeat(6)).unwrap();
    b.set_at(&there, made);
    assert_eq!(b.valid_in(), ["there"]);
    assert_eq!(b.host().unwrap().to_f32().unwrap(), [2.0; 6]);
    assert_eq!((moved(&b), b.valid_in().len()), ((48, 24), 2));
    // From one device to another over the host, which has it already.
    let other: Arc<dyn Place> = Arc::new(Somewhere("other", false));
    b.at(&other).unwrap();
    assert_eq!((moved(&b), b.valid_in().len()), ((72, 24), 3));
}

#[test]
fn nothing_moves_where_memory_is_one() {
    let here: Arc<dyn Place> = Arc::new(Somewhere("here", true));
    let b = UnifiedBuffer::from(Tensor::from_f32(&[4], &[1.0; 4]).unwrap());
    b.at(&here).unwrap();
    assert_eq!(moved(&b), (0, 0));
}

#[test]
fn a_buffer_without_a_value_says_so() {
    let b = UnifiedBuffer::new(DType::F32, &[4]);
    assert!(b.host().is_err() && b.valid_in().is_empty());
    let mut b = b;
    assert!(
        b.set_host(Tensor::zeros(DType::F32, &[5]).unwrap())
            .is_err()
    );
    b.set_host(Tensor::zeros(DType::F32, &[4]).unwrap())
        .unwrap();
    assert_eq!(b.into_tensor().unwrap().shape(), [4]);
}
