import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { ChangeNotice } from '#src/webhooks/notices.ts';
import { type Connection, type Fields, textAt, unique } from '../conformance/connection.ts';
import { claim, paths, volume, VOLUMES } from '../conformance/objects.ts';
import { createAuthority } from '../harness/kube-certificates.ts';
import { realControlPlane, type RealControlPlane } from '../harness/real-control-plane.ts';
import { readManifests } from '../harness/real-manifests.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';
import { startWebhooks, type WebhookServer } from '../harness/ingest-webhooks.ts';

const CONFIGURATIONS = '/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations';

// The cluster of KUBECONFIG can't reach a webhook on this machine's loopback.
const skip = (process.env['KUBEBUILDER_ASSETS'] ?? '') === '' && 'no kube-apiserver here';

describe('k8s/admission on kube-apiserver, with the receiver of ingest', { skip }, () => {
  let plane: RealControlPlane;
  let api: Connection;
  let redis: TestRedis;
  let folder: string;
  let receiver: WebhookServer;
  let claims: string;
  const seen: ChangeNotice[] = [];

  before(async () => {
    plane = await realControlPlane(process.env, { binder: false })();
    ({ api } = plane);
    claims = paths(await api.namespace()).claims;
    redis = await startTestRedis();
    folder = await mkdtemp(join(tmpdir(), 'sutler-admission-'));
    const authority = createAuthority(folder, 'webhooks');
    const { certFile, keyFile } = authority.server();
    receiver = await startWebhooks(redis.url, [
      `--admission-tls-cert=${certFile}`,
      `--admission-tls-key=${keyFile}`,
    ]);
    await api.create(CONFIGURATIONS, ours({ url: receiver.admission, ca: authority.ca }));
    await untilNoticed(() => createClaim());
  });
  after(async () => {
    await receiver.close();
    await redis.close();
    await plane.close();
    await rm(folder, { recursive: true });
  });

  const readNotices = async (): Promise<void> => void seen.push(...(await receiver.notices()));
  const noticesOf = (name: string): readonly ChangeNotice[] =>
    seen.filter((notice) => notice.name === name);
  /** Creates a claim. @returns its name */
  const createClaim = async (): Promise<string> =>
    textAt(await api.create(claims, claim(unique('claim'))), 'metadata', 'name');
  /** Writes until there is a notice of one: a server asks a new webhook only after some time. */
  const untilNoticed = async (write: () => Promise<string>): Promise<string> => {
    const names: string[] = [];
    for (;;) {
      names.push(await write());
      await delay(50);
      await readNotices();
      const noticed = names.find((name) => noticesOf(name).length > 0);
      if (noticed !== undefined) return noticed;
    }
  };
  const untilNotice = (name: string, count = 1) =>
    until(
      async () => {
        await readNotices();
        return noticesOf(name).length >= count;
      },
      `${count} notices for ${name}`,
      10_000,
    );
  /** That there is no notice is known when there is one of a later write. */
  const noNoticeAfter = async (name: string, count: number): Promise<void> => {
    await untilNotice(await createClaim());
    assert.equal(noticesOf(name).length, count);
  };

  it('leaves a notice of a claim, which is there a moment later', async () => {
    const name = await createClaim();
    await untilNotice(name);
    const namespace = claims.split('/')[4];
    const resource = 'persistentvolumeclaims';
    assert.deepEqual(noticesOf(name), [{ resource, namespace, name }]);
    await api.read(`${claims}/${name}`);
  });

  it('leaves none of a dry run', async () => {
    const name = unique('trial');
    await api.call('POST', claims, { body: claim(name), query: { dryRun: 'All' } });
    await noNoticeAfter(name, 0);
  });

  it('leaves a notice of a claim that a quota refuses, and that never comes to be', async () => {
    const namespace = await api.namespace();
    const hard = { persistentvolumeclaims: '0' };
    const quotas = `/api/v1/namespaces/${namespace}/resourcequotas`;
    await api.create(quotas, { metadata: { name: 'none' }, spec: { hard } });
    await api.patch('merge', `${quotas}/none/status`, { status: { hard, used: hard } });
    const path = paths(namespace).claims;
    let name = '';
    const isRefused = async (): Promise<boolean> => {
      name = unique('refused');
      const { status, text } = await api.call('POST', path, { body: claim(name) });
      return status === 403 && text.includes('exceeded quota');
    };
    await until(isRefused, 'the quota refuses a claim');
    await untilNotice(name);
    assert.equal((await api.get(`${path}/${name}`)).status, 404);
  });

  it('leaves notices of changes of a claim until it has a volume, and of its deletion', async () => {
    const name = await createClaim();
    const path = `${claims}/${name}`;
    const annotate = (value: string) =>
      api.patch('merge', path, { metadata: { annotations: { 'e.com/a': value } } });
    await annotate('before');
    await untilNotice(name, 2);
    await api.patch('merge', path, { spec: { volumeName: 'some-volume' } });
    await untilNotice(name, 3);
    await annotate('after');
    await noNoticeAfter(name, 3);
    await api.call('DELETE', path);
    await api.patch('merge', path, { metadata: { finalizers: null } });
    await untilNotice(name, 4);
  });

  it('leaves one of a volume whose phase, policy or deletion changes, and none of other changes', async () => {
    const name = unique('volume');
    await api.create(VOLUMES, volume(name));
    const path = `${VOLUMES}/${name}`;
    await api.patch('merge', `${path}/status`, { status: { phase: 'Released' } });
    await untilNotice(name);
    assert.deepEqual(noticesOf(name), [{ resource: 'persistentvolumes', namespace: '', name }]);
    await api.patch('merge', path, { metadata: { annotations: { 'e.com/a': 'b' } } });
    await noNoticeAfter(name, 1);
    await api.patch('merge', path, { spec: { persistentVolumeReclaimPolicy: 'Delete' } });
    await untilNotice(name, 2);
    await api.call('DELETE', path);
    await api.patch('merge', path, { metadata: { finalizers: null } });
    await untilNotice(name, 3);
  });
});

/** The configuration of k8s/admission, with an address instead of a Service. */
function ours({ url, ca }: { readonly url: string; readonly ca: string }) {
  const kind = 'ValidatingWebhookConfiguration';
  const manifest = readManifests('admission').find(({ object }) => object.kind === kind);
  assert.ok(manifest !== undefined);
  const webhooks = manifest.object['webhooks'] as readonly Fields[];
  const clientConfig = { url, caBundle: Buffer.from(ca).toString('base64') };
  return { ...manifest.object, webhooks: webhooks.map((hook) => ({ ...hook, clientConfig })) };
}
