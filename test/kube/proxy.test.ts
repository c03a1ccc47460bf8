import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { createKubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { proxyOf } from '#src/kube/proxy.ts';
import { namespaces } from '#src/kube/resources.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { silentLog } from '#src/runtime/log.ts';
import { createAuthority } from '../harness/kube-certificates.ts';
import { startTunnelProxy } from '../harness/kube-proxy.ts';
import { startKubeServer } from '../harness/kube-server.ts';

type Environment = Readonly<Record<string, string>>;

const PROXY = 'http://proxy.example:3128';
const proxyFor = (server: string, env: Environment): string | undefined =>
  proxyOf(new URL(server), env)?.href;
const isProxied = (server: string, noProxy: string): boolean =>
  proxyFor(server, { HTTPS_PROXY: PROXY, NO_PROXY: noProxy }) !== undefined;

describe('the proxy of the environment', () => {
  const NAMES: readonly (readonly [title: string, server: string, Environment, string?])[] = [
    ['HTTPS_PROXY for https', 'https://api', { HTTPS_PROXY: PROXY }, `${PROXY}/`],
    ['https_proxy for https', 'https://api', { https_proxy: PROXY }, `${PROXY}/`],
    ['HTTP_PROXY for http', 'http://api', { HTTP_PROXY: PROXY }, `${PROXY}/`],
    ['http_proxy for http', 'http://api', { http_proxy: PROXY }, `${PROXY}/`],
    ['not HTTP_PROXY for https', 'https://api', { HTTP_PROXY: PROXY }],
    ['not HTTPS_PROXY for http', 'http://api', { HTTPS_PROXY: PROXY }],
    [
      'upper case first',
      'https://api',
      { HTTPS_PROXY: 'http://a', https_proxy: PROXY },
      'http://a/',
    ],
    ['without a scheme, by http', 'https://api', { HTTPS_PROXY: 'a:3128' }, 'http://a:3128/'],
    ['by TLS', 'https://api', { HTTPS_PROXY: 'https://a:3129' }, 'https://a:3129/'],
    ['none that is empty', 'https://api', { HTTPS_PROXY: '' }],
    ['no_proxy in lower case', 'https://api', { HTTPS_PROXY: PROXY, no_proxy: 'api' }],
  ];
  for (const [title, server, env, proxy] of NAMES)
    it(`is ${title}`, () => assert.equal(proxyFor(server, env), proxy));

  for (const host of ['localhost', '127.0.0.1', '127.9.8.7', '[::1]'])
    it(`is never used for ${host}`, () => assert.ok(!isProxied(`https://${host}:6443`, '')));

  const EXEMPT = `
    *=https://api.example a,*=https://api.example example=https://api.example
    API.Example=https://api.example .example=https://api.example *.example=https://api.example
    api.example:6443=https://api.example:6443 api.example:443=https://api.example
    a,api.example,b=https://api.example 10.96.0.1=https://10.96.0.1
    10.96.0.1:443=https://10.96.0.1 10.96.0.0/12=https://10.111.255.255
    fd00::1=https://[fd00::1] [fd00::1]=https://[fd00::1] [fd00::1]:6443=https://[fd00::1]:6443
    fd00::/8=https://[fd00:10:96::1]`;
  for (const [, noProxy = '', server = ''] of EXEMPT.matchAll(/(\S+)=(\S+)/g))
    it(`is not used for ${server} with NO_PROXY=${noProxy}`, () =>
      assert.ok(!isProxied(server, noProxy)));

  const PROXIED = `
    .api.example=https://api.example pi.example=https://api.example
    api.example:443=https://api.example:6443 10.96.0.1:6443=https://10.96.0.1
    10.96.0.0/12=https://10.112.0.1 10.96.0.0/40=https://10.96.0.1 0.1=https://10.96.0.1
    [fd00::1]:6443=https://[fd00::1] fd00::/8=https://10.96.0.1 :443=https://api.example
    ,=https://api.example`;
  for (const [, noProxy = '', server = ''] of PROXIED.matchAll(/(\S+)=(\S+)/g))
    it(`is used for ${server} with NO_PROXY=${noProxy}`, () =>
      assert.ok(isProxied(server, noProxy)));

  it('is not used for a name in NO_PROXY that has blanks around it', () =>
    assert.ok(!isProxied('https://api.example', 'a, api.example , b')));

  it('is refused by its variable, without its value, where it speaks another protocol', () =>
    assert.throws(
      () => proxyFor('https://api', { HTTPS_PROXY: 'socks5://user:hidden@a:1080' }),
      (error) =>
        error instanceof UsageError &&
        error.message.startsWith('HTTPS_PROXY: ') &&
        !error.message.includes('hidden'),
    ));
});

describe('the way to the API server', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sutler-proxy-'));
  const authority = createAuthority(folder, 'ca');
  writeFileSync(join(folder, 'token'), 'token-1');
  writeFileSync(join(folder, 'ca.crt'), authority.ca);
  const closers: (() => Promise<void>)[] = [];
  after(async () => {
    for (const close of closers.toReversed()) await close();
    rmSync(folder, { recursive: true });
  });

  const POD = { KUBERNETES_SERVICE_HOST: 'api.example', KUBERNETES_SERVICE_PORT: '6443' };

  /** Calls an API server of the name api.example as a pod does, through the proxy.
   * @param login  in the proxy's URL */
  async function call(login: string) {
    const server = await startKubeServer((_, reply) => reply.json(200, { metadata: {} }), {
      ...authority.server('api.example'),
    });
    closers.push(() => server.close());
    const proxy = await startTunnelProxy(Number(new URL(server.url).port));
    closers.push(() => proxy.close());
    const access = await loadClusterAccess({
      env: { ...POD, HTTPS_PROXY: proxy.url.replace('//', `//${login}`) },
      serviceAccountDir: folder,
    });
    const client = createKubeClient({ access, userAgent: 'test', log: silentLog });
    closers.push(() => client.close());
    return { answer: await client.get(namespaces, { name: 'default' }), proxy, server };
  }

  it('leads through the proxy of HTTPS_PROXY, which sees user and password of its URL', async () => {
    const { answer, proxy, server } = await call('user:pass%40word@');
    assert.deepEqual(answer, { metadata: {} });
    assert.deepEqual(proxy.targets, ['api.example:6443']);
    const login = Buffer.from('user:pass@word').toString('base64');
    assert.deepEqual(proxy.logins, [`Basic ${login}`]);
    const { headers } = server.seen[0] ?? assert.fail();
    assert.equal(headers.authorization, 'Bearer token-1');
    assert.equal(headers['proxy-authorization'], undefined);
  });

  it('is that of the kubeconfig’s proxy-url where there is one', async () => {
    const path = join(folder, 'kubeconfig');
    const config = {
      'current-context': 'here',
      contexts: [{ name: 'here', context: { cluster: 'c', user: 'u' } }],
      clusters: [{ name: 'c', cluster: { server: 'https://api', 'proxy-url': 'http://own:1' } }],
      users: [{ name: 'u', user: { token: 't' } }],
    };
    writeFileSync(path, JSON.stringify(config));
    const env = { HTTPS_PROXY: PROXY, NO_PROXY: 'api' };
    assert.equal((await loadClusterAccess({ kubeconfig: path, env })).proxy?.href, 'http://own:1/');
  });
});
