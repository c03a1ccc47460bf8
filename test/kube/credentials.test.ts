import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { REREAD_AFTER_MS } from '#src/kube/credential-file.ts';
import {
  loadClusterAccess,
  type AccessOptions,
  type ClusterAccess,
} from '#src/kube/credentials.ts';
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
  loadClusterAccess({
    env: {},
    loadClientNode: () => Promise.reject(new Error('client-node must not be loaded')),
    ...o,
  });

const header = async (user: object): Promise<string | undefined> =>
  (await load({ kubeconfig: kubeconfig({ user }) })).authorization();

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
  it('reads server, namespace and data of the current context', async () => {
    const path = kubeconfig({
      cluster: {
        'certificate-authority-data': base64(authority.ca),
        'tls-server-name': 'api.example',
      },
      user: { 'client-certificate-data': base64(alice.cert), 'client-key-data': base64(alice.key) },
    });
    const access = await load({ kubeconfig: path });
    assert.deepEqual(
      [access.server.href, access.namespace, access.source],
      ['https://10.0.0.1:6443/', 'team', `kubeconfig ${path}, context "here"`],
    );
    assert.deepEqual(await access.tls(), {
      ca: authority.ca,
      cert: alice.cert,
      key: alice.key,
      servername: 'api.example',
      skipVerify: false,
    });
    assert.equal(await access.authorization(), undefined);
    assert.equal(await access.tls(), await access.tls(), 'the same object while nothing changed');
  });

  it('resolves files relative to the kubeconfig, and prefers data', async () => {
    writeFileSync(join(directory, 'ca.pem'), authority.ca);
    writeFileSync(join(directory, 'alice.pem'), alice.cert);
    writeFileSync(join(directory, 'alice.key'), alice.key);
    const access = await load({
      kubeconfig: kubeconfig({
        cluster: { 'certificate-authority': 'ca.pem' },
        user: {
          'client-certificate': './alice.pem',
          'client-key': 'missing',
          'client-key-data': base64(alice.key),
        },
      }),
    });
    const tls = await access.tls();
    assert.deepEqual(
      [tls.ca, tls.cert, tls.key],
      [authority.ca.trim(), alice.cert.trim(), alice.key],
    );
  });

  it('reads YAML, and another context on request', async () => {
    const path = write(
      [
        'apiVersion: v1',
        'current-context: here',
        'contexts:',
        '- {name: here, context: {cluster: a, user: x}}',
        '- {name: there, context: {cluster: b}}',
        'clusters:',
        '- {name: a, cluster: {server: "https://a:1"}}',
        '- {name: b, cluster: {server: "http://b:2/prefix/"}}',
        'users: [{name: x, user: {token: t}}]',
      ].join('\n'),
    );
    assert.equal(
      (await load({ kubeconfig: path, context: 'there' })).server.href,
      'http://b:2/prefix/',
    );
    assert.equal(await (await load({ kubeconfig: path })).authorization(), 'Bearer t');
  });

  it('reads tokens, token files (which take precedence) and passwords', async () => {
    writeFileSync(join(directory, 'token-a'), 'from-file\n');
    assert.equal(await header({ token: 'plain' }), 'Bearer plain');
    assert.equal(await header({ token: 'plain', tokenFile: 'token-a' }), 'Bearer from-file');
    assert.equal(await header({ username: 'ü', password: 'p:w' }), `Basic ${base64('ü:p:w')}`);
    assert.equal(await header({}), undefined);
  });

  it('skips verification only where the kubeconfig says so, and then needs no CA', async () => {
    const access = await load({
      kubeconfig: kubeconfig({
        cluster: { 'insecure-skip-tls-verify': true, 'certificate-authority': 'missing' },
      }),
    });
    assert.deepEqual([(await access.tls()).skipVerify, (await access.tls()).ca], [true, undefined]);
    assert.equal(access.unverifiedCluster, 'c');
    assert.equal((await load({ kubeconfig: kubeconfig() })).unverifiedCluster, undefined);
  });

  it('lets --master replace the server, and with it the name to verify', async () => {
    const path = kubeconfig({
      cluster: {
        'tls-server-name': 'api.example',
        'certificate-authority-data': base64(authority.ca),
      },
    });
    const access = await load({ kubeconfig: path, master: '10.9.9.9:6443' });
    assert.equal(access.server.href, 'https://10.9.9.9:6443/');
    const tls = await access.tls();
    assert.deepEqual([tls.servername, tls.ca], [undefined, authority.ca]);
  });

  it('refuses to send a token or a password by http, on loopback too', async () => {
    const cases: readonly (readonly [string, object])[] = [
      ['a token', { token: 't' }],
      ['a token', { tokenFile: 'token-a' }],
      ['a password', { username: 'u', password: 'p' }],
      ['an exec plugin', { exec: { command: './missing.sh' } }],
      ['an auth-provider plugin', { 'auth-provider': { name: 'gcp' } }],
    ];
    for (const server of ['http://10.0.0.1:8080', 'http://127.0.0.1:8080'])
      for (const [has, user] of cases) {
        const path = kubeconfig({ cluster: { server }, user });
        const parts = ['context "here"', `user "u" has ${has}`, 'cluster "c"', 'https://'];
        await refused({ kubeconfig: path }, ...parts, server);
      }
  });

  it('refuses it for a --master of http, and for a server without a scheme', async () => {
    const user = { token: 't' };
    const secured = kubeconfig({ user });
    await refused({ kubeconfig: secured, master: 'http://10.9.9.9:1' }, 'http://10.9.9.9:1/');
    await refused({ kubeconfig: secured, master: '10.9.9.9:1' }, 'http://10.9.9.9:1/');
    await refused({ kubeconfig: kubeconfig({ cluster: { server: 'a:1' }, user }) }, 'http://a:1/');
  });

  it('accepts http for a user without credentials', async () => {
    const path = kubeconfig({ cluster: { server: 'http://127.0.0.1:8001' } });
    const access = await load({ kubeconfig: path });
    assert.equal(await access.authorization(), undefined);
  });

  it('accepts HTTP proxies and refuses others', async () => {
    assert.equal(
      (await load({ kubeconfig: kubeconfig({ cluster: { 'proxy-url': 'http://proxy:3128' } }) }))
        .proxy?.href,
      'http://proxy:3128/',
    );
    await refused(
      { kubeconfig: kubeconfig({ cluster: { 'proxy-url': 'socks5://proxy:1080' } }) },
      'proxy-url "socks5://proxy:1080" is not supported',
      'context "here"',
    );
  });

  it('names file, context and fix for every mistake', async () => {
    const missing = join(directory, 'nowhere');
    await refused({ kubeconfig: missing }, `kubeconfig ${missing}`, 'no such file', '--kubeconfig');
    await refused({ kubeconfig: '/a:/b' }, 'kubeconfig /a:/b', 'one file');
    await refused({ kubeconfig: directory }, directory);
    await refused({ kubeconfig: write('a: [') }, 'not YAML', 'kubectl config view');
    await refused({ kubeconfig: write('') }, 'not YAML', 'empty');
    await refused({ kubeconfig: write('- 1') }, 'not a kubeconfig');
    await refused({ kubeconfig: write({}) }, 'no current-context', 'kubectl config use-context');
    await refused(
      { kubeconfig: kubeconfig(), context: 'else' },
      'context "else" is not in it',
      'kubectl config get-contexts',
    );
    await refused(
      { kubeconfig: kubeconfig({ more: { clusters: [] } }) },
      'context "here"',
      'cluster "c" is not in the file',
    );
    await refused({ kubeconfig: kubeconfig({ more: { clusters: 3 } }) }, 'clusters is not a list');
    await refused(
      { kubeconfig: kubeconfig({ more: { users: [] } }) },
      'context "here"',
      'user "u" is not in the file',
    );
    await refused(
      { kubeconfig: kubeconfig({ cluster: { server: '' } }) },
      'has no server',
      'kubectl config set-cluster',
    );
    await refused(
      { kubeconfig: kubeconfig({ cluster: { server: 'ftp://x' } }) },
      '"ftp://x" is not a server',
    );
    await refused(
      { kubeconfig: kubeconfig({ cluster: { 'certificate-authority': 'gone.pem' } }) },
      'context "here"',
      `certificate-authority ${join(directory, 'gone.pem')}`,
      'no such file',
    );
    await refused(
      { kubeconfig: kubeconfig({ cluster: { 'certificate-authority-data': 'eA==' } }) },
      'cluster "c"',
      'certificate-authority-data is not base64 of a PEM',
    );
    await refused(
      { kubeconfig: kubeconfig({ user: { token: 5 } }) },
      'user "u"',
      'token is not a text',
    );
    await refused(
      { kubeconfig: kubeconfig({ user: { 'client-certificate-data': base64(alice.cert) } }) },
      'client-certificate but no client-key',
    );
    await refused(
      {
        kubeconfig: kubeconfig({
          user: {
            'client-certificate-data': base64(alice.cert),
            'client-key-data': base64(other.client('x').key),
          },
        }),
      },
      'the key belongs to the certificate',
    );
    await refused(
      { kubeconfig: kubeconfig({ user: { as: 'admin', token: 't' } }) },
      'impersonation',
    );
    await refused(
      { kubeconfig: kubeconfig({ user: { tokenFile: 'gone' } }) },
      `tokenFile ${join(directory, 'gone')}`,
    );
  });
});

describe('files that are replaced', () => {
  it('a token is read again after half a minute, and at once after a 401', async () => {
    const token = join(directory, 'token-b');
    writeFileSync(token, 'one');
    let nowMs = 0;
    const access = await load({
      kubeconfig: kubeconfig({ user: { tokenFile: token } }),
      nowMs: () => nowMs,
    });
    writeFileSync(token, 'two');
    assert.equal(await access.authorization(), 'Bearer one');
    nowMs += REREAD_AFTER_MS;
    assert.deepEqual(await Promise.all([access.authorization(), access.authorization()]), [
      'Bearer two',
      'Bearer two',
    ]);
    writeFileSync(token, 'three');
    await access.refresh();
    assert.equal(await access.authorization(), 'Bearer three');
  });

  it('an empty or missing file leaves the last good content in use', async () => {
    const token = join(directory, 'token-c');
    writeFileSync(token, 'one');
    const access = await load({ kubeconfig: kubeconfig({ user: { tokenFile: token } }) });
    writeFileSync(token, '');
    await access.refresh();
    assert.equal(await access.authorization(), 'Bearer one');
    rmSync(token);
    await access.refresh();
    assert.equal(await access.authorization(), 'Bearer one');
  });

  it('a certificate is used only with its key', async () => {
    const [cert, key] = [join(directory, 'rotating.crt'), join(directory, 'rotating.key')];
    const next = authority.client('alice');
    writeFileSync(cert, alice.cert);
    writeFileSync(key, alice.key);
    const access = await load({
      kubeconfig: kubeconfig({ user: { 'client-certificate': cert, 'client-key': key } }),
    });
    const before = await access.tls();
    writeFileSync(cert, next.cert);
    await access.refresh();
    assert.equal(await access.tls(), before, 'the new certificate does not fit the old key');
    writeFileSync(key, next.key);
    await access.refresh();
    const now = await access.tls();
    assert.deepEqual([now.cert, now.key], [next.cert.trim(), next.key.trim()]);
  });
});

describe('loadClusterAccess without a kubeconfig', () => {
  const pod = join(directory, 'pod');
  mkdirSync(pod);
  writeFileSync(join(pod, 'token'), 'pod-token\n');
  writeFileSync(join(pod, 'ca.crt'), authority.ca);
  writeFileSync(join(pod, 'namespace'), 'storage');

  it('uses the service account of the pod', async () => {
    const access = await load({
      env: { KUBERNETES_SERVICE_HOST: '10.96.0.1', KUBERNETES_SERVICE_PORT: '443' },
      serviceAccountDir: pod,
    });
    assert.deepEqual(
      [access.server.href, access.source, access.namespace],
      ['https://10.96.0.1/', 'in-cluster', 'storage'],
    );
    assert.equal(await access.authorization(), 'Bearer pod-token');
    assert.equal((await access.tls()).ca, authority.ca.trim());
  });

  it('puts IPv6 hosts in brackets', async () => {
    const access = await load({
      env: { KUBERNETES_SERVICE_HOST: 'fd00::1', KUBERNETES_SERVICE_PORT: '6443' },
      serviceAccountDir: pod,
    });
    assert.equal(access.server.href, 'https://[fd00::1]:6443/');
  });

  it('says what to do outside a pod, or in a pod without a service account', async () => {
    await refused({}, 'KUBERNETES_SERVICE_HOST', '--kubeconfig=FILE', '--master=URL');
    const env = { KUBERNETES_SERVICE_HOST: '10.96.0.1', KUBERNETES_SERVICE_PORT: '443' };
    await refused(
      { env, serviceAccountDir: join(directory, 'empty') },
      'ca.crt',
      'automountServiceAccountToken',
    );
  });

  it('accepts --master alone, without credentials, also plain http', async () => {
    const access = await load({
      master: '127.0.0.1:8080',
      env: { KUBERNETES_SERVICE_HOST: '10.96.0.1', KUBERNETES_SERVICE_PORT: '443' },
      serviceAccountDir: pod,
    });
    assert.equal(access.server.href, 'http://127.0.0.1:8080/');
    assert.equal(await access.authorization(), undefined);
    assert.equal((await load({ master: 'https://api/x' })).server.href, 'https://api/x');
    await refused({ master: 'not a url' }, '--master', 'write https://host:port');
  });
});

describe('plugins', () => {
  const script = join(directory, 'plugin.sh');
  const ran = join(directory, 'ran');
  writeFileSync(
    script,
    `#!/bin/sh
echo "$KUBERNETES_EXEC_INFO $1 $EXTRA" >> ${ran}
n=$(wc -l < ${ran})
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"token-'"$n"'"}}'
`,
  );
  chmodSync(script, 0o755);
  const exec = {
    apiVersion: 'client.authentication.k8s.io/v1',
    command: './plugin.sh',
    args: ['get-token'],
    env: [{ name: 'EXTRA', value: 'given' }],
  };
  const runs = (): string[] => readFileSync(ran, 'utf8').trim().split('\n');

  it('are run by client-node, once for many requests, and again after a 401', async () => {
    let nowMs = 0;
    let loads = 0;
    const access = await load({
      kubeconfig: kubeconfig({ user: { exec } }),
      nowMs: () => nowMs,
      loadClientNode: () => {
        loads++;
        return import('@kubernetes/client-node');
      },
    });
    assert.deepEqual(
      await Promise.all(Array.from({ length: 5 }, () => access.authorization())),
      Array.from({ length: 5 }, () => 'Bearer token-1'),
    );
    const [first] = runs();
    assert.match(first ?? '', /"kind":"ExecCredential".* get-token given$/);
    nowMs += 60_000;
    await Promise.all([access.refresh(), access.refresh()]);
    assert.deepEqual(
      [await access.authorization(), runs().length, loads],
      ['Bearer token-2', 2, 1],
    );
    nowMs += 1000;
    await access.refresh();
    assert.equal(runs().length, 2, 'a refusal that persists does not start a plugin per request');
  });

  it('that fail cause an error that names kubeconfig, context and reason', async () => {
    const failing = { ...exec, command: 'sh', args: ['-c', 'echo log in first >&2; exit 1'] };
    await refused(
      {
        kubeconfig: kubeconfig({ user: { exec: failing } }),
        loadClientNode: () => import('@kubernetes/client-node'),
      },
      'context "here"',
      'exec plugin failed',
      'log in first',
    );
    await refused(
      {
        kubeconfig: kubeconfig({ user: { exec: {} } }),
        loadClientNode: () => import('@kubernetes/client-node'),
      },
      'names no command',
    );
  });
});
