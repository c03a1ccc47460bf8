import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { CreateVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import type { Claim, Event, KubeObject, Volume } from '#src/kube/objects.ts';
import { claims, csiNodes, events, nodes, volumes } from '#src/kube/resources.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import { isReady } from '../harness/run-main.ts';
import { until } from '../harness/until.ts';

const SELECTED_NODE = 'volume.kubernetes.io/selected-node';
const ZONES = ['a', 'b', 'c', 'd'];

describe('a zonal driver', () => {
  let bed: ProcessBed;
  /** What the driver was asked, by the name of the claim. */
  const asked = new Map<string, CreateVolumeRequest>();

  before(async () => {
    bed = await ProcessBed.open({
      pools: ZONES.map((zone) => ({ name: zone, segments: { zone }, capacityBytes: 1n << 40n })),
      onCall({ method, request }) {
        if (method !== 'CreateVolume') return undefined;
        const create = request as CreateVolumeRequest;
        asked.set(create.parameters['csi.storage.k8s.io/pvc/name'] ?? '', create);
        return undefined;
      },
    });
    const { kube } = bed;
    for (const zone of ZONES) {
      const name = `node-${zone}`;
      await kube.create<KubeObject>(nodes, undefined, { metadata: { name, labels: { zone } } });
      const drivers = [{ name: DRIVER, nodeID: name, topologyKeys: ['zone'] }];
      const csiNode = { metadata: { name }, spec: { drivers } };
      await kube.create<KubeObject>(csiNodes, undefined, csiNode);
    }
    const late = { provisioner: DRIVER, volumeBindingMode: 'WaitForFirstConsumer' };
    await bed.createClass('late', late);
    const running = [await bed.startIngest(), await bed.startJobs('--extra-create-metadata')];
    for (const each of running) await until(() => isReady(each), 'it is ready');
  });
  after(() => bed.close());

  /** A claim for which the scheduler selects that node. */
  const claimFor = async (node: string): Promise<Claim> => {
    const claim = await bed.newClaim('1Mi', { storageClassName: 'late' });
    await select(claim, node);
    return claim;
  };
  const select = (claim: Claim, node: string): Promise<unknown> => {
    const body = { metadata: { annotations: { [SELECTED_NODE]: node } } };
    return bed.kube.patch(claims, claim.metadata, { type: 'merge', body });
  };
  const label = (zone: string | null): Promise<unknown> => {
    const body = { metadata: { labels: { zone } } };
    return bed.kube.patch(nodes, { name: 'node-d' }, { type: 'merge', body });
  };
  const bound = (claim: Claim): Promise<void> => until(() => bed.isBound(claim), 'it is bound');
  /** Zones of the requirement that the driver got for a claim: "requisite; preferred". */
  const zonesOf = ({ metadata: { name } }: Claim): string => {
    const { requisite = [], preferred = [] } = asked.get(name)?.accessibilityRequirements ?? {};
    const zones = [requisite, preferred].map((terms) =>
      terms.map(({ segments }) => segments['zone']).join(''),
    );
    return zones.join('; ');
  };
  /** The warning about a claim. */
  const warning = async ({ metadata }: Claim): Promise<string> => {
    const isAbout = ({ type, involvedObject }: Event): boolean =>
      type === 'Warning' && involvedObject.name === metadata.name;
    let message = '';
    await until(async () => {
      const { items } = await bed.kube.list<Event>(events, { namespace: 'default' });
      message = items.find(isAbout)?.message ?? '';
      return message !== '';
    }, 'a warning');
    return message;
  };

  it('is told all zones for a claim that is bound at once; its PV is tied to one', async () => {
    const claim = await bed.newClaim();
    await bound(claim);
    const [requisite = '', [zone] = ''] = zonesOf(claim).split('; ');
    assert.equal(requisite, 'abcd');
    const name = `pvc-${claim.metadata.uid}`;
    assert.deepEqual((await bed.kube.get<Volume>(volumes, { name }))?.spec.nodeAffinity, {
      required: {
        nodeSelectorTerms: [
          { matchExpressions: [{ key: 'zone', operator: 'In', values: [zone] }] },
        ],
      },
    });
  });

  it('is not called for a node that has vanished: the scheduler selects another one', async () => {
    const claim = await claimFor('node-gone');
    assert.match(
      await warning(claim),
      /^failed to get selected CSINode node-gone: csinode.storage.k8s.io "node-gone" not found; /,
    );
    await until(async () => {
      const found = await bed.kube.get<Claim>(claims, claim.metadata);
      return found?.metadata.annotations?.[SELECTED_NODE] === undefined;
    }, 'the selected node is removed');
    assert.equal(zonesOf(claim), '; ');
    await select(claim, 'node-b');
    await bound(claim);
    assert.equal(zonesOf(claim), 'abcd; bcda');
  });

  it('gets a claim that fitted on no node soon after one fits', async () => {
    await label(null);
    const claim = await claimFor('node-d');
    assert.match(
      await warning(claim),
      /^error generating accessibility requirements: topology labels from selected node map\[\]/,
    );
    await until(() => bed.cluster.api.watchCount('nodes') === 2, 'ingest watches nodes too');
    await label('d');
    await bound(claim);
    assert.equal(zonesOf(claim), 'abcd; dabc');
  });
});

describe('a driver without topology', () => {
  it('costs no request for nodes, neither by ingest nor by jobs', async (t) => {
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
});
