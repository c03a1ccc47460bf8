import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { CreateVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import type { Event, KubeObject } from '#src/kube/objects.ts';
import { claims, csiNodes, events, nodes } from '#src/kube/resources.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import { isReady } from '../harness/run-main.ts';
import { until } from '../harness/until.ts';

const ZONES = ['a', 'b', 'c', 'd'];

it('a zonal driver gets a claim that fitted on no node soon after one fits', async (t) => {
  const asked: CreateVolumeRequest[] = [];
  const bed = await ProcessBed.open({
    pools: ZONES.map((zone) => ({ name: zone, segments: { zone }, capacityBytes: 1n << 40n })),
    onCall({ method, request }) {
      if (method === 'CreateVolume') asked.push(request as CreateVolumeRequest);
      return undefined;
    },
  });
  t.after(() => bed.close());
  const { kube } = bed;
  for (const zone of ZONES) {
    const name = `node-${zone}`;
    const labels = zone === 'd' ? {} : { zone };
    await kube.create<KubeObject>(nodes, undefined, { metadata: { name, labels } });
    const drivers = [{ name: DRIVER, nodeID: name, topologyKeys: ['zone'] }];
    await kube.create<KubeObject>(csiNodes, undefined, { metadata: { name }, spec: { drivers } });
  }
  await bed.createClass('late', {
    provisioner: DRIVER,
    volumeBindingMode: 'WaitForFirstConsumer',
  });
  const running = [await bed.startIngest(), await bed.startJobs()];
  for (const each of running) await until(() => isReady(each), 'it is ready');

  const claim = await bed.newClaim('1Mi', { storageClassName: 'late' });
  const annotations = { 'volume.kubernetes.io/selected-node': 'node-d' };
  await kube.patch(claims, claim.metadata, { type: 'merge', body: { metadata: { annotations } } });
  const isWarned = async (): Promise<boolean> => {
    const { items } = await kube.list<Event>(events, { namespace: 'default' });
    const expected =
      /^error generating accessibility requirements: topology labels from selected node map\[\]/;
    return items.some(({ type, message }) => type === 'Warning' && expected.test(message));
  };
  await until(isWarned, 'a warning');
  await until(() => bed.cluster.api.watchCount('nodes') === 2, 'ingest watches nodes too');
  const body = { metadata: { labels: { zone: 'd' } } };
  await kube.patch(nodes, { name: 'node-d' }, { type: 'merge', body });
  await until(() => bed.isBound(claim), 'it is bound');
  const zones = (['requisite', 'preferred'] as const).map((kind) =>
    asked[0]?.accessibilityRequirements?.[kind].map(({ segments }) => segments['zone']).join(''),
  );
  assert.deepEqual(zones, ['abcd', 'dabc']);
});

it('a driver without topology costs no request for nodes, neither by ingest nor by jobs', async (t) => {
  const bed = await ProcessBed.open();
  t.after(() => bed.close());
  const running = [await bed.startIngest(), await bed.startJobs()];
  for (const each of running) await until(() => isReady(each), 'it is ready');
  const claim = await bed.newClaim();
  await until(() => bed.isBound(claim), 'the claim is bound');
  const sent = Object.keys(bed.cluster.api.requests.snapshot());
  assert.ok(sent.includes('watch storageclasses'));
  assert.ok(!sent.some((each) => /nodes/.test(each)), sent.join());
});
