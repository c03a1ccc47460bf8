#!/bin/sh
# Certificates for the gateway and its callers, made with openssl: for clusters without
# cert-manager, and for testing.
#
#   k8s/gateway/certificates.sh FOLDER
#
# Makes, in FOLDER, an authority (ca.crt, ca.key) and a certificate with its key for each of
# gateway, ingest, jobs and audit. A second run keeps the authority and renews the others; the
# processes load new files within seconds. Remove ca.key to get a new authority.
#
#   GATEWAY_NAMES  subjectAltName of the gateway; default: the names of its Service in the cluster
#   DAYS           lifetime of the certificates; default: 90. The authority lasts ten years.
set -eu

folder=${1:?usage: certificates.sh FOLDER}
days=${DAYS:-90}
service=sutler-gateway.sutler.svc
gateway_names=${GATEWAY_NAMES:-DNS:$service,DNS:$service.cluster.local}
umask 077
mkdir -p "$folder"
cd "$folder"

if [ ! -f ca.key ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
    -keyout ca.key -out ca.crt -days 3650 -subj "/CN=sutler gateway authority" \
    -addext "basicConstraints=critical,CA:TRUE" \
    -addext "keyUsage=critical,keyCertSign,cRLSign" 2>/dev/null
fi

# certificate NAME SUBJECT-ALT-NAME EXTENDED-KEY-USAGE
certificate() {
  cat >"$1.ext" <<EXTENSIONS
subjectAltName=$2
extendedKeyUsage=$3
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
EXTENSIONS
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
    -keyout "$1.key.new" -out "$1.csr" -subj "/CN=sutler $1" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key \
    -set_serial "0x$(openssl rand -hex 16)" -days "$days" -extfile "$1.ext" \
    -out "$1.crt.new" 2>/dev/null
  mv "$1.key.new" "$1.key"
  mv "$1.crt.new" "$1.crt"
  rm "$1.ext" "$1.csr"
}

certificate gateway "$gateway_names" serverAuth
certificate ingest DNS:sutler-ingest clientAuth
certificate jobs DNS:sutler-jobs clientAuth
certificate audit DNS:sutler-audit clientAuth

for name in gateway ingest jobs audit; do
  openssl verify -CAfile ca.crt "$name.crt" >/dev/null
done
