//! One gRPC message of a request: received whole, taken out of its frame, put into one.

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Buf};
use prost::Message;

use crate::limits;

/// Flag and length before a message.
const PREFIX: usize = 5;

/// All bytes of a body.
///
/// # Errors
/// When there are too many, or the body breaks off.
pub async fn receive<B>(body: B) -> Result<Bytes, String>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, limits::MESSAGE).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(format!("it is larger than the {} bytes that a policy is held against", limits::MESSAGE))
        }
        Err(error) => Err(format!("it broke off: {error}")),
    }
}

/// The one message in `body`.
///
/// # Errors
/// When it is compressed, or there is not exactly one.
pub fn payload(body: &Bytes) -> Result<Bytes, String> {
    let mut rest = body.clone();
    if rest.len() < PREFIX {
        return Err("it has no message".to_owned());
    }
    if rest.get_u8() != 0 {
        return Err("it is compressed".to_owned());
    }
    let length = rest.get_u32();
    if usize::try_from(length).ok() != Some(rest.len()) {
        return Err("it is not exactly one message".to_owned());
    }
    Ok(rest)
}

/// A message in its frame.
///
/// # Errors
/// When it is larger than a frame may be.
pub fn frame(message: &impl Message) -> Result<Bytes, String> {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).map_err(|error| error.to_string())?);
    message.encode(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes.freeze())
}

#[cfg(test)]
mod tests {
    use bulkhead_api::cri::v1::RunPodSandboxRequest;
    use http_body_util::Full;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_holds_exactly_one_plain_message() {
        let message = RunPodSandboxRequest { runtime_handler: "x".into(), ..Default::default() };
        let bytes = frame(&message).unwrap();
        assert_eq!(RunPodSandboxRequest::decode(payload(&bytes).unwrap()).unwrap(), message);
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut changed = bytes.to_vec();
            change(&mut changed);
            payload(&changed.into()).unwrap_err()
        };
        assert!(with(&|b| b[0] = 1).contains("compressed"));
        assert!(with(&|b| b.push(0)).contains("exactly one"));
        assert!(with(&|b| b.extend_from_slice(&[0; 5])).contains("exactly one"));
        assert!(with(&|b| b.truncate(7)).contains("exactly one"));
        assert!(with(&|b| b.truncate(4)).contains("no message"));
        assert!(with(&|b| b[1] = 255).contains("exactly one"));
    }

    #[tokio::test]
    async fn a_body_is_bounded() {
        let body = |bytes| Full::new(Bytes::from(vec![0; bytes]));
        assert_eq!(receive(body(limits::MESSAGE)).await.unwrap().len(), limits::MESSAGE);
        assert!(receive(body(limits::MESSAGE + 1)).await.unwrap_err().contains("larger"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(payload) = payload(&bytes.into()) {
                let _ = RunPodSandboxRequest::decode(payload);
            }
        }
    }
}
