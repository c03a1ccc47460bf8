import type { Scene } from '../../../harness/differential/scene.ts';
import type { Fields } from '../../../conformance/connection.ts';
import {
  contentPath,
  makeContent,
  makeSnapshot,
  type SnapshotChanges,
  snapshotPath,
} from '../../../harness/differential/snapshot-objects.ts';
import {
  bound,
  calls,
  event,
  refused,
  scenario,
  type Scenario,
  stays,
} from '../../../harness/differential/scenario.ts';
import { type CallAnswer, volumeFor } from '../../../harness/differential/scripted-driver.ts';

const FROM_SNAP = { apiGroup: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot', name: 'snap' };
const OURS = 'provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection';
const ALLOW = 'snapshot.storage.kubernetes.io/allow-volume-mode-change';
const FILESYSTEM = { sourceVolumeMode: 'Filesystem' };

/** Restores of snapshots. */
export const snapshots: readonly Scenario[] = [
  restored('snap-plain', 'restores a snapshot, and keeps it meanwhile (C-01, C-25, R-12)', {
    spec: { dataSource: undefined, dataSourceRef: FROM_SNAP },
  }),
  restored('snap-larger', 'restores into a larger volume', {
    spec: { resources: { requests: { storage: '2Gi' } } },
  }),
  restored('snap-no-size', 'checks no size if the snapshot has none', {
    changes: { status: { restoreSize: null } },
    spec: { resources: { requests: { storage: '1Mi' } } },
  }),
  restored('snap-block', 'restores Block from a snapshot of unknown mode', {
    spec: { volumeMode: 'Block' },
  }),
  restored('snap-mode-allowed', 'changes the mode if the content allows it (C-17)', {
    changes: { content: FILESYSTEM, contentMetadata: { annotations: { [ALLOW]: 'T' } } },
    spec: { volumeMode: 'Block' },
  }),
  restored('snap-resumed', 'restores a snapshot that is being deleted with our finalizer (C-38)', {
    changes: { metadata: { finalizers: [OURS] } },
    before: removeSnapshot,
  }),
  restored('snap-other-finalizer', 'keeps the finalizers of others', {
    changes: { metadata: { finalizers: ['example.com/other'] } },
  }),
  rejected('snap-too-small', 'refuses a claim smaller than the snapshot (C-02)', {
    spec: { resources: { requests: { storage: '1023Mi' } } },
  }),
  rejected('snap-ready-unknown', 'refuses a snapshot of unknown readiness (C-16)', {
    changes: { status: { readyToUse: null } },
  }),
  rejected('snap-not-bound', 'refuses a snapshot without content name (C-15)', {
    changes: { status: { boundVolumeSnapshotContentName: null } },
  }),
  rejected('snap-content-no-handle', 'refuses a content without handle (C-13)', {
    changes: { contentStatus: { snapshotHandle: null } },
  }),
  rejected('snap-content-driver', 'refuses the content of another driver (C-11)', {
    changes: { content: { driver: 'other.example.com' } },
  }),
  ...(['uid', 'namespace', 'name'] as const).map((field) =>
    rejected(`snap-back-${field}`, `refuses a content of another ${field} (C-08, C-09, C-10)`, {
      after: (scene) =>
        scene.patch(contentPath(scene, 'snap'), {
          spec: { volumeSnapshotRef: { [field]: 'another' } },
        }),
    }),
  ),
  rejected('snap-mode', 'refuses to change the mode (C-18)', {
    changes: { content: FILESYSTEM },
    spec: { volumeMode: 'Block' },
  }),
  rejected('snap-mode-nonsense', 'refuses to change the mode by a value that is no boolean', {
    changes: { content: FILESYSTEM, contentMetadata: { annotations: { [ALLOW]: 'maybe' } } },
    spec: { volumeMode: 'Block' },
  }),
  rejected('snap-going', 'refuses a snapshot that is being deleted (C-37)', {
    changes: { metadata: { finalizers: ['example.com/other'] } },
    after: removeSnapshot,
  }),
  scenario('snap-later', 'reports what the snapshot lacks, and then restores (C-12, C-14)', {
    claim: { spec: { dataSource: FROM_SNAP } },
    ends: async (scene) => {
      await refused(scene);
      const snapshot = await makeSnapshot(scene, 'snap', { status: null, content: null });
      await event('ProvisioningFailed', 'snapshot snap not bound')(scene);
      const boundVolumeSnapshotContentName = contentPath(scene, 'snap').split('/').at(-1);
      await scene.setStatus(snapshotPath(scene, 'snap'), {
        boundVolumeSnapshotContentName,
        readyToUse: true,
        restoreSize: '1Gi',
      });
      await event('ProvisioningFailed', 'error getting snapshotcontent')(scene);
      await makeContent(scene, snapshot, { contentStatus: null });
      await event('ProvisioningFailed', 'is not available')(scene);
      await scene.setStatus(contentPath(scene, 'snap'), {
        snapshotHandle: 'later',
        readyToUse: true,
      });
      await bound(scene);
    },
  }),
  rejected('snap-ready-later', 'restores once the snapshot is ready (C-06)', {
    changes: { status: { readyToUse: false } },
    afterwards: async (scene) => {
      await scene.setStatus(snapshotPath(scene, 'snap'), { readyToUse: true });
      await bound(scene);
      await scene.deleteAll();
    },
  }),
  scenario('snap-wrong-group', 'refuses a VolumeSnapshot of another group (C-05)', {
    claim: { spec: { dataSourceRef: { ...FROM_SNAP, apiGroup: 'other.example.io' } } },
    ends: refused,
  }),
  scenario('snap-unsupported', 'leaves another kind of the snapshot group to a populator (C-04)', {
    claim: { spec: { dataSourceRef: { ...FROM_SNAP, kind: 'UnsupportedKind' } } },
    ends: (scene) => scene.until('the event', () => scene.hasEvent('Provisioning', 'Assuming')),
  }),
  rejected('snap-answer', 'deletes a volume that is not made of the snapshot (C-07)', {
    answer: (call) =>
      call.method === 'CreateVolume'
        ? volumeFor(call.create, { contentSource: undefined })
        : undefined,
    afterwards: calls('DeleteVolume', 1),
  }),
  rejected('snap-refused', 'keeps the finalizer while the driver refuses', {
    answer: (call) => {
      if (call.method === 'CreateVolume') throw new Error('not now');
    },
  }),
];

interface Restore {
  readonly changes?: SnapshotChanges;
  readonly spec?: Fields;
  /** Called after the snapshot is created. */
  readonly before?: (scene: Scene) => Promise<unknown>;
  readonly after?: (scene: Scene) => Promise<unknown>;
  readonly answer?: CallAnswer;
  readonly afterwards?: (scene: Scene) => Promise<unknown>;
}

function restored(name: string, title: string, restore: Restore = {}): Scenario {
  return scenario(name, title, {
    prepare: async (scene) => {
      await makeSnapshot(scene, 'snap', restore.changes);
      await restore.before?.(scene);
    },
    claim: { spec: { dataSource: FROM_SNAP, ...restore.spec } },
    answer: noteFinalizers,
  });
}

function rejected(name: string, title: string, restore: Restore = {}): Scenario {
  return {
    name,
    title,
    prepare: async (scene) => {
      await makeSnapshot(scene, 'snap', restore.changes);
      await restore.after?.(scene);
    },
    claim: { spec: { dataSource: FROM_SNAP, ...restore.spec } },
    answer: restore.answer ?? noteFinalizers,
    ends: refused,
    afterwards: restore.afterwards ?? stays,
  };
}

/** The finalizers that keep the snapshot while the driver reads it. */
async function noteFinalizers(call: Parameters<CallAnswer>[0], scene: Scene): Promise<void> {
  if (call.method !== 'CreateVolume' || call.count > 1) return;
  const reply = await scene.api.get(snapshotPath(scene, 'snap'));
  scene.notes['finalizers of the snapshot during CreateVolume'] =
    (reply.body as { metadata?: { finalizers?: unknown } }).metadata?.finalizers ?? [];
}

async function removeSnapshot(scene: Scene): Promise<void> {
  await scene.remove(snapshotPath(scene, 'snap'));
}
