//! Answers of the gate itself, as the API server would write them: a `Status` object.

use bulkhead_api::access::ApiRequest;
use bulkhead_base::chain;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use crate::body::ResponseBody;
use crate::error::{Refusal, Unavailable};
use crate::limits;

/// What a refused request gets.
pub fn refused(refusal: &Refusal, request: Option<&ApiRequest>) -> Response<ResponseBody> {
    let (code, reason) = match refusal {
        Refusal::TooMany { .. } => (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
        Refusal::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
        Refusal::Stranger { .. }
        | Refusal::NotListed { .. }
        | Refusal::Unless { .. }
        | Refusal::Unreadable { .. } => (StatusCode::FORBIDDEN, "Forbidden"),
    };
    status(code, reason, &refusal.to_string(), request)
}

/// What a request gets that cannot reach the API server.
pub fn unavailable(error: &Unavailable, request: &ApiRequest) -> Response<ResponseBody> {
    status(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", &chain(error).to_string(), Some(request))
}

fn status(
    code: StatusCode,
    reason: &str,
    message: &str,
    request: Option<&ApiRequest>,
) -> Response<ResponseBody> {
    let mut details = serde_json::Map::new();
    if let Some(request) = request {
        let fields = [("name", &request.name), ("group", &request.group), ("kind", &request.resource)];
        for (field, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            details.insert(field.to_owned(), json!(value));
        }
    }
    let again = matches!(code, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
    if again {
        details.insert("retryAfterSeconds".to_owned(), json!(1));
    }
    let object = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code.as_u16(),
    });
    let mut response = Response::new(ResponseBody::own(object.to_string()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if again {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static(limits::RETRY_AFTER));
    }
    response
}
