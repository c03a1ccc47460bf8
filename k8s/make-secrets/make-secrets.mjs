/* Creates the Secrets of sutler: passwords and URLs of Redis, the password of the dashboard, and
 * certificates for the gateway and its callers. One that exists is left alone. Runs in the Job of
 * job.yaml. */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const {
  KUBERNETES_SERVICE_HOST: host = '',
  KUBERNETES_SERVICE_PORT_HTTPS: port = '443',
  NAMESPACE: namespace = '',
  API = `https://${host.includes(':') ? `[${host}]` : host}:${port}`,
  TOKEN_FILE = '/var/run/secrets/kubernetes.io/serviceaccount/token',
} = process.env;
const AUTHORITY = 'sutler-gateway-authority';
const password = () => randomBytes(24).toString('hex');

/** Creates a Secret, or reads one that must be there. */
async function call(method, name, stringData) {
  const collection = `${API}/api/v1/namespaces/${namespace}/secrets`;
  const response = await fetch(method === 'GET' ? `${collection}/${name}` : collection, {
    method,
    headers: {
      authorization: `Bearer ${readFileSync(TOKEN_FILE, 'utf8').trim()}`,
      'content-type': 'application/json',
    },
    ...(method === 'POST' && {
      body: JSON.stringify({ apiVersion: 'v1', kind: 'Secret', metadata: { name }, stringData }),
    }),
  });
  const text = await response.text();
  const exists = method === 'POST' && response.status === 409;
  if (!response.ok && !exists)
    throw new Error(`${method} Secret ${namespace}/${name}: ${response.status} ${text}`);
  if (method === 'POST')
    console.log(`Secret ${namespace}/${name}: ${exists ? 'was there' : 'created'}`);
  return JSON.parse(text);
}
const create = (name, stringData) => call('POST', name, stringData);

/** Makes the gateways' authority, or takes that of an earlier run, and signs certificates. */
async function createCertificates() {
  const folder = mkdtempSync(join(tmpdir(), 'certificates-'));
  const makeCertificates = () => {
    const program = fileURLToPath(new URL('../gateway/certificates.sh', import.meta.url));
    const options = { env: { ...process.env, DAYS: '365' } };
    // Not execFileSync: a connection that the API server closes meanwhile would be used again.
    return promisify(execFile)('sh', [program, folder], options);
  };
  const file = (name) => readFileSync(join(folder, name), 'utf8');
  const certificate = (name) => ({
    'ca.crt': file('ca.crt'),
    'tls.crt': file(`${name}.crt`),
    'tls.key': file(`${name}.key`),
  });
  try {
    await makeCertificates();
    await create(AUTHORITY, certificate('ca'));
    const { data } = await call('GET', AUTHORITY);
    writeFileSync(join(folder, 'ca.crt'), Buffer.from(data['tls.crt'], 'base64'));
    writeFileSync(join(folder, 'ca.key'), Buffer.from(data['tls.key'], 'base64'));
    await makeCertificates();
    for (const name of ['gateway', 'ingest', 'jobs'])
      await create(`sutler-${name}-tls`, certificate(name));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

await create('sutler-dashboard', { password: password() });
await createCertificates();
const redis = ['ingest', 'jobs', 'all', 'dashboard', 'operator'].flatMap((name) => {
  const secret = password();
  const url = `redis://sutler-${name}:${secret}@sutler-redis.${namespace}.svc:6379`;
  return [
    [`${name}-password`, secret],
    [`${name}-url`, url],
  ];
});
// Last, since no process starts without it: else the dashboard might make up a password.
await create('sutler-redis', Object.fromEntries(redis));
