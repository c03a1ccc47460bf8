import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import type { ClusterAccess } from '#src/kube/credentials.ts';
import { type AccessOptions, loadClusterAccess } from '#src/kube/open-client.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { createAuthority } from '../harness/kube-certificates.ts';

const directory = mkdtempSync(join(tmpdir(), 'sutler-credentials-'));
after(() => rmSync(directory, { recursive: true }));
const authority = createAuthority(directory, 'ca');
const other = createAuthority(directory, 'other');
const alice = authority.client('alice');
const base64 = (text: string): string => Buffer.from(text).toString('base64');

let files = 0;
function write(content: unknown): string {
  const path = join(directory, `config-${++files}`);
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content));
  return path;
}

/** A kubeconfig; JSON is YAML. */
function kubeconfig(o: { cluster?: object; user?: object; more?: object } = {}): string {
  return write({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'here',
    contexts: [{ name: 'here', context: { cluster: 'c', user: 'u', namespace: 'team' } }],
    clusters: [{ name: 'c', cluster: { server: 'https://10.0.0.1:6443', ...o.cluster } }],
    users: [{ name: 'u', user: o.user ?? {} }],
    ...o.more,
  });
}

const load = (o: Partial<AccessOptions>): Promise<ClusterAccess> =>
  loadClusterAccess({ env: {}, ...o });

/** The headers of requests; authorization as the API server reads it. */
async function headersOf(access: ClusterAccess): Promise<Record<string, string | string[]>> {
  const { headers } = await access.credentials();
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
}
const authorizationOf = async (access: ClusterAccess) => (await headersOf(access))['authorization'];
const headers = async (user: object) => headersOf(await load({ kubeconfig: kubeconfig({ user }) }));

async function refused(o: Partial<AccessOptions>, ...parts: readonly string[]): Promise<void> {
  await assert.rejects(load(o), (error) => {
    assert.ok(error instanceof UsageError, String(error));
    assert.equal(error.message.split('\n').length, 1, 'one line');
    for (const part of parts)
      assert.ok(error.message.includes(part), `${part} not in: ${error.message}`);
    return true;
  });
}

describe('loadClusterAccess from a kubeconfig', () => {
  it('reads server and data of the current context', async () => {
    const path = kubeconfig({
      cluster: { 'certificate-authority-data': base64(authority.ca), 'tls-server-name': 'api' },
      user: { 'client-certificate-data': base64(alice.cert), 'client-key-data': base64(alice.key) },
    });
    const access = await load({ kubeconfig: path });
    assert.equal(access.server.href, 'https://10.0.0.1:6443/');
    assert.equal(access.source, `kubeconfig ${path}, context "here"`);
    const { cert, key } = alice;
    const tls = { ca: authority.ca, cert, key, servername: 'api', skipVerify: false };
    assert.deepEqual(await access.credentials(), { tls, headers: {} });
  });

  it('resolves files relative to the kubeconfig, and prefers data', async () => {
    writeFileSync(join(directory, 'ca.pem'), authority.ca);
    writeFileSync(join(directory, 'alice.pem'), alice.cert);
    const keys = { 'client-key': 'missing', 'client-key-data': base64(alice.key) };
    const access = await load({
      kubeconfig: kubeconfig({
        cluster: { 'certificate-authority': 'ca.pem' },
        user: { 'client-certificate': './alice.pem', ...keys },
      }),
    });
    const { tls } = await access.credentials();
    assert.deepEqual([tls.ca, tls.cert, tls.key], [authority.ca, alice.cert, alice.key]);
  });

  it('reads tokens, token files (which take precedence) and passwords', async () => {
    writeFileSync(join(directory, 'token-a'), 'from-file\n');
    const cases: readonly (readonly [object, string | undefined])[] = [
      [{ token: 'plain' }, 'Bearer plain'],
      [{ token: 'plain', tokenFile: 'token-a' }, 'Bearer from-file'],
      [{ username: 'ü', password: 'p:w' }, `Basic ${base64('ü:p:w')}`],
      [{}, undefined],
    ];
    for (const [user, expected] of cases)
      assert.equal((await headers(user))['authorization'], expected);
  });

  it('impersonates the user whom it names, with groups, UID and extra fields', async () => {
    const as = { as: 'admin', 'as-uid': 'u-1', 'as-groups': ['a', 'b'] };
    assert.deepEqual(await headers({ token: 't', ...as, 'as-user-extra': { 'scopes/x': ['v'] } }), {
      authorization: 'Bearer t',
      'impersonate-user': 'admin',
      'impersonate-uid': 'u-1',
      'impersonate-group': ['a', 'b'],
      'impersonate-extra-scopes%2fx': ['v'],
    });
  });

  it('skips verification only where the kubeconfig says so, and then needs no CA', async () => {
    const cluster = { 'insecure-skip-tls-verify': true, 'certificate-authority': 'missing' };
    const access = await load({ kubeconfig: kubeconfig({ cluster }) });
    const { tls } = await access.credentials();
    assert.deepEqual([tls.skipVerify, tls.ca, access.unverifiedCluster], [true, undefined, 'c']);
  });

  it('lets --master replace the server, and with it the name to verify', async () => {
    const ca = { 'certificate-authority-data': base64(authority.ca) };
    const path = kubeconfig({ cluster: { 'tls-server-name': 'api.example', ...ca } });
    const access = await load({ kubeconfig: path, master: '10.9.9.9:6443' });
    assert.equal(access.server.href, 'https://10.9.9.9:6443/');
    const { tls } = await access.credentials();
    assert.deepEqual([tls.servername, tls.ca], [undefined, authority.ca]);
  });

  it('refuses to send credentials by http, on loopback too', async () => {
    const users: readonly object[] = [
      { token: 't' },
      { tokenFile: 'token-a' },
      { username: 'u', password: 'p' },
      { as: 'admin' },
      { exec: { command: './missing.sh' } },
      { 'auth-provider': { name: 'gcp' } },
    ];
    for (const server of ['http://10.0.0.1:8080', 'http://127.0.0.1:8080'])
      for (const user of users) {
        const path = kubeconfig({ cluster: { server }, user });
        const parts = ['context "here"', 'credentials of user "u"', 'https://'];
        await refused({ kubeconfig: path }, ...parts, server);
      }
  });

  it('sends nothing but requests without credentials by http', async () => {
    const user = { token: 't' };
    const secured = kubeconfig({ user });
    for (const master of ['http://10.9.9.9:1', '10.9.9.9:1'])
      await refused({ kubeconfig: secured, master }, 'http://10.9.9.9:1/');
    await refused({ kubeconfig: kubeconfig({ cluster: { server: 'a:1' }, user }) }, 'http://a:1/');
    const path = kubeconfig({ cluster: { server: 'http://127.0.0.1:8001' } });
    assert.deepEqual(await headersOf(await load({ kubeconfig: path })), {});
  });

  const cert = { 'client-certificate-data': base64(alice.cert) };
  const nowhere = join(directory, 'nowhere');
  const ofCluster = (cluster: object): string => kubeconfig({ cluster });
  const ofUser = (user: object): string => kubeconfig({ user });
  const having = (more: object): string => kubeconfig({ more });
  const otherKey = base64(other.client('x').key);
  const mistakes: readonly (readonly [what: string, path: string, ...parts: string[]])[] = [
    ['no file', nowhere, nowhere, 'no such file', 'KUBECONFIG'],
    ['several files', '/a:/b', 'kubeconfig /a:/b', 'one file'],
    ['a folder', directory, directory],
    ['no YAML', write('a: ['), 'kubectl config view'],
    ['another document', write('- 1'), 'not a YAML mapping'],
    ['no current context', write({}), 'context ""', 'kubectl config view --minify'],
    [
      'a missing current context',
      having({ 'current-context': 'else' }),
      'context "else": the file lacks',
    ],
    ['no such cluster', having({ clusters: [] }), 'context "here"', 'its cluster'],
    ['clusters of another form', having({ clusters: 3 }), 'its cluster'],
    ['no such user', having({ users: [] }), 'context "here"', 'its user'],
    ['no server', ofCluster({ server: '' }), 'with a server'],
    ['a server of another protocol', ofCluster({ server: 'ftp://x' }), '"ftp://x" is not a server'],
    [
      'a proxy of another protocol than HTTP',
      ofCluster({ 'proxy-url': 'socks5://proxy:1080' }),
      'proxy-url "socks5://proxy:1080" is not supported',
      'context "here"',
    ],
    [
      'a file that is gone',
      ofCluster({ 'certificate-authority': 'gone.pem' }),
      'context "here"',
      join(directory, 'gone.pem'),
      'no such file',
      'readable',
    ],
    [
      'a CA that is not PEM',
      ofCluster({ 'certificate-authority-data': 'eA==' }),
      'context "here"',
      'the CA is not PEM',
    ],
    ['a certificate without its key', ofUser(cert), 'client-certificate and client-key must be'],
    [
      'a certificate with another key',
      ofUser({ ...cert, 'client-key-data': otherKey }),
      'the key belongs to the certificate',
    ],
    [
      'a token file that is gone',
      ofUser({ tokenFile: 'gone' }),
      `tokenFile: ${join(directory, 'gone')}`,
    ],
  ];
  for (const [what, path, ...parts] of mistakes)
    it(`names file, context and fix for a mistake: ${what}`, () =>
      refused({ kubeconfig: path }, ...parts));
});

describe('files that are replaced', () => {
  it('a token is read again after ten seconds, and at once after a 401', async () => {
    const token = join(directory, 'token-b');
    writeFileSync(token, 'one');
    let nowMs = 0;
    const access = await load({
      kubeconfig: kubeconfig({ user: { tokenFile: token } }),
      nowMs: () => nowMs,
    });
    const first = await access.credentials();
    writeFileSync(token, 'two');
    assert.equal(await access.credentials(), first);
    nowMs += 10_000;
    assert.deepEqual(await Promise.all([authorizationOf(access), authorizationOf(access)]), [
      'Bearer two',
      'Bearer two',
    ]);
    assert.equal((await access.credentials()).tls, first.tls, 'what did not change is the same');
    writeFileSync(token, 'three');
    await access.credentials(await access.credentials());
    assert.equal(await authorizationOf(access), 'Bearer three');
  });

  it('an empty or missing file leaves the last good content in use', async () => {
    const token = join(directory, 'token-c');
    writeFileSync(token, 'one');
    let nowMs = 0;
    const access = await load({
      kubeconfig: kubeconfig({ user: { tokenFile: token } }),
      nowMs: () => (nowMs += 60_000),
    });
    writeFileSync(token, '');
    assert.equal(await authorizationOf(access), 'Bearer one');
    rmSync(token);
    assert.equal(await authorizationOf(access), 'Bearer one');
  });

  it('a certificate is used only with its key', async () => {
    const [cert, key] = [join(directory, 'rotating.crt'), join(directory, 'rotating.key')];
    const next = authority.client('alice');
    writeFileSync(cert, alice.cert);
    writeFileSync(key, alice.key);
    let nowMs = 0;
    const access = await load({
      kubeconfig: kubeconfig({ user: { 'client-certificate': cert, 'client-key': key } }),
      nowMs: () => (nowMs += 60_000),
    });
    const before = await access.credentials();
    writeFileSync(cert, next.cert);
    assert.equal((await access.credentials()).tls, before.tls, 'it does not fit the old key');
    writeFileSync(key, next.key);
    const { tls } = await access.credentials();
    assert.deepEqual([tls.cert, tls.key], [next.cert, next.key]);
  });
});

describe('loadClusterAccess without a kubeconfig', () => {
  const pod = join(directory, 'pod');
  mkdirSync(pod);
  writeFileSync(join(pod, 'token'), 'pod-token\n');
  writeFileSync(join(pod, 'ca.crt'), authority.ca);
  const inPod = (host: string) => ({
    env: { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: '443' },
    serviceAccountDir: pod,
  });

  it('uses the service account of the pod, and reads its token again after half a minute', async () => {
    let nowMs = 0;
    const access = await load({ ...inPod('10.96.0.1'), nowMs: () => nowMs });
    assert.deepEqual([access.server.href, access.source], ['https://10.96.0.1/', 'in-cluster']);
    assert.equal(await authorizationOf(access), 'Bearer pod-token');
    assert.equal((await access.credentials()).tls.ca, authority.ca.trim());
    writeFileSync(join(pod, 'token'), 'next');
    assert.equal(await authorizationOf(access), 'Bearer pod-token');
    nowMs += 30_000;
    assert.equal(await authorizationOf(access), 'Bearer next');
  });

  it('says what to do outside a pod, or in a pod without a service account', async () => {
    await refused({}, 'KUBERNETES_SERVICE_HOST', '--kubeconfig=FILE', '--master=URL');
    const empty = { ...inPod('10.96.0.1'), serviceAccountDir: join(directory, 'empty') };
    await refused(empty, 'ca.crt', 'automountServiceAccountToken');
  });

  it('accepts --master alone, without credentials, also plain http', async () => {
    const access = await load({ ...inPod('10.96.0.1'), master: '127.0.0.1:8080' });
    assert.equal(access.server.href, 'http://127.0.0.1:8080/');
    assert.deepEqual(await headersOf(access), {});
    assert.equal((await load({ master: 'https://api/x' })).server.href, 'https://api/x');
    await refused({ master: 'not a url' }, '--master', 'write https://host:port');
  });
});

describe('plug-ins', () => {
  /** Each run prints a token with its number. */
  function plugin(name: string, status: object = {}) {
    const ran = join(directory, `${name}-ran`);
    const path = join(directory, `${name}.sh`);
    const credential = JSON.stringify({
      apiVersion: 'client.authentication.k8s.io/v1',
      kind: 'ExecCredential',
      status: { token: 'token-N', ...status },
    });
    const script = `#!/bin/sh
echo "$KUBERNETES_EXEC_INFO $1 $EXTRA" >> ${ran}
echo '${credential}' | sed "s/token-N/token-$(wc -l < ${ran})/"
`;
    writeFileSync(path, script, { mode: 0o755 });
    return {
      exec: {
        apiVersion: 'client.authentication.k8s.io/v1',
        command: `./${name}.sh`,
        args: ['get-token'],
        env: [{ name: 'EXTRA', value: 'given' }],
      },
      runs: (): string[] => readFileSync(ran, 'utf8').trim().split('\n'),
    };
  }

  it('run once for many requests, and again after a 401', async () => {
    const { exec, runs } = plugin('lasting');
    let nowMs = 0;
    const access = await load({ kubeconfig: kubeconfig({ user: { exec } }), nowMs: () => nowMs });
    nowMs += 60_000;
    assert.deepEqual(
      await Promise.all(Array.from({ length: 5 }, () => authorizationOf(access))),
      Array.from({ length: 5 }, () => 'Bearer token-1'),
    );
    const [first] = runs();
    assert.match(first ?? '', /"kind":"ExecCredential".* get-token given$/);
    const refused = await access.credentials();
    await Promise.all([access.credentials(refused), access.credentials(refused)]);
    assert.deepEqual([await authorizationOf(access), runs().length], ['Bearer token-2', 2]);
    nowMs += 1000;
    await access.credentials(await access.credentials());
    assert.equal(runs().length, 2, 'a refusal that persists does not start a plug-in per request');
  });

  it('run again when their credential has expired', async () => {
    const { exec } = plugin('expiring', { expirationTimestamp: '2020-01-01T00:00:00Z' });
    let nowMs = 0;
    const access = await load({ kubeconfig: kubeconfig({ user: { exec } }), nowMs: () => nowMs });
    assert.equal(await authorizationOf(access), 'Bearer token-1');
    nowMs += 10_000;
    assert.equal(await authorizationOf(access), 'Bearer token-2');
  });

  it('that fail cause an error that names kubeconfig, context and reason', async () => {
    const exec = { command: 'sh', args: ['-c', 'echo log in first >&2; exit 1'] };
    const path = kubeconfig({ user: { exec } });
    await refused({ kubeconfig: path }, path, 'context "here"', 'log in first');
    await refused({ kubeconfig: kubeconfig({ user: { exec: {} } }) }, 'No command');
  });

  it('that fail later make the call fail with the reason', async () => {
    const { exec } = plugin('failing-later');
    let nowMs = 0;
    const access = await load({ kubeconfig: kubeconfig({ user: { exec } }), nowMs: () => nowMs });
    const refused = await access.credentials();
    rmSync(join(directory, 'failing-later.sh'));
    nowMs += 60_000;
    await assert.rejects(access.credentials(refused), /spawn .* ENOENT; .*log in again/);
  });
});
