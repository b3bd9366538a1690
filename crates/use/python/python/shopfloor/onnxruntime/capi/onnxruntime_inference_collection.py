"""Sessions, bindings and values where onnxruntime defines them."""

from .._binding import IOBinding
from .._session import InferenceSession, Session, check_and_normalize_provider_args
from .._enums import OrtDeviceVendorId
from .._values import OrtDevice, OrtValue, SparseTensor
