#!/bin/sh
# Certificates for the gateway and its callers, by openssl alone: where there is no cert-manager, and for trying.
#
#   k8s/gateway/certificates.sh FOLDER
#
# Makes, in FOLDER, an authority (ca.crt, ca.key) and a certificate with its key for each of gateway, ingest, jobs and audit. Run again, it
# keeps the authority and renews the rest; the processes see new files within seconds. A removed ca.key makes a new authority.
#
#   GATEWAY_NAMES  subjectAltName of the gateway    (DNS:sutler-gateway.sutler.svc,DNS:sutler-gateway.sutler.svc.cluster.local)
#   DAYS           for which the certificates last  (90); the authority lasts ten years
set -eu

folder=${1:?usage: certificates.sh FOLDER}
days=${DAYS:-90}
gateway_names=${GATEWAY_NAMES:-DNS:sutler-gateway.sutler.svc,DNS:sutler-gateway.sutler.svc.cluster.local}
umask 077
mkdir -p "$folder"
cd "$folder"

if [ ! -f ca.key ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.crt -days 3650 \
    -subj "/CN=sutler gateway authority" -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" 2>/dev/null
fi

# certificate NAME SUBJECT-ALT-NAME EXTENDED-KEY-USAGE
certificate() {
  printf 'subjectAltName=%s\nextendedKeyUsage=%s\nbasicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n' "$2" "$3" >"$1.ext"
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1.key.new" -out "$1.csr" -subj "/CN=sutler $1" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -set_serial "0x$(openssl rand -hex 16)" -days "$days" -extfile "$1.ext" -out "$1.crt.new" 2>/dev/null
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
