//! Knocks at a socket: `knock SOCKET /package.Service/Method` makes one call with an empty message and prints the gRPC code,
//! or `refused at the socket`. Tests run it as users who must not get in.

use std::path::PathBuf;

use hyper_util::rt::TokioIo;
use tonic::transport::{Endpoint, Uri};

#[expect(clippy::print_stdout, reason = "its answer is its output")]
fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(socket), Some(path)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("knock SOCKET /package.Service/Method");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("{}", runtime.block_on(knock(socket.into(), &path))?);
    Ok(())
}

async fn knock(socket: PathBuf, path: &str) -> anyhow::Result<String> {
    if let Err(error) = tokio::net::UnixStream::connect(&socket).await {
        return Ok(format!("refused at the socket: {}", error.kind()));
    }
    let connect = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://knock.local").connect_with_connector(connect).await?;
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await?;
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let call = client.unary(tonic::Request::new(()), path.parse()?, codec);
    Ok(match tokio::time::timeout(std::time::Duration::from_secs(10), call).await {
        Ok(Ok(_)) => "Ok".to_owned(),
        Ok(Err(status)) => format!("{:?}", status.code()),
        Err(_) => "no answer".to_owned(),
    })
}
