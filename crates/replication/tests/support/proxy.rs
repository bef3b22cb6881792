//! A man in the middle: speaks TLS to both sides, with a certificate of his own to the client.

use super::certificates::{Authority, Pair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// Listens on a port of its own and passes everything on to `server_port`, whose certificate is of
/// `authority` and for `db.internal`. Ends with the runtime.
pub(crate) async fn start(shown: &Pair, authority: &Authority, server_port: u16) -> u16 {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(shown.key.serialize_der()).unwrap();
    let certificate = CertificateDer::from(shown.certificate_der.clone());
    let accepting = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap())
        .unwrap();
    let connecting = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (acceptor, connector) = (
        TlsAcceptor::from(Arc::new(accepting)),
        TlsConnector::from(Arc::new(connecting)),
    );
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(pass_on(
                client,
                server_port,
                acceptor.clone(),
                connector.clone(),
            ));
        }
    });
    port
}

async fn pass_on(
    mut client: TcpStream,
    server_port: u16,
    acceptor: TlsAcceptor,
    connector: TlsConnector,
) {
    let mut request = [0; 8];
    client.read_exact(&mut request).await.unwrap();
    assert_eq!(request, SSL_REQUEST);
    client.write_all(b"S").await.unwrap();
    let mut client = acceptor.accept(client).await.unwrap();
    let mut server = TcpStream::connect(("127.0.0.1", server_port))
        .await
        .unwrap();
    server.write_all(&SSL_REQUEST).await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), b'S');
    let name = ServerName::try_from("db.internal").unwrap();
    let mut server = connector.connect(name, server).await.unwrap();
    // Either side closing is the end of it.
    drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
}
