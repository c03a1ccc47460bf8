import type { Scene } from '../../../harness/differential/scene.ts';
import { VOLUMES, claim } from '../../../conformance/objects.ts';
import type { Fields } from '../../../conformance/connection.ts';
import {
  all,
  bound,
  calls,
  ignored,
  refused,
  scenario,
  type Scenario,
  stays,
} from '../../../harness/differential/scenario.ts';
import {
  type CallAnswer,
  type ScriptedCall,
  status,
  volumeFor,
} from '../../../harness/differential/scripted-driver.ts';

const FROM_SOURCE = { kind: 'PersistentVolumeClaim', name: 'source' };
const BLOCK = { volumeMode: 'Block' };
const LATE = { volumeBindingMode: 'WaitForFirstConsumer' };

/** Clones of claims. */
export const clones: readonly Scenario[] = [
  cloned('clone-plain', 'clones a claim, and keeps it by a finalizer meanwhile (D-01)'),
  cloned('clone-ref', 'clones by dataSourceRef (D-35)', {
    spec: { dataSource: undefined, dataSourceRef: FROM_SOURCE },
  }),
  cloned('clone-block', 'clones Block from Block (D-21)', { source: BLOCK, spec: BLOCK }),
  cloned('clone-larger', 'clones into a larger volume', {
    spec: { resources: { requests: { storage: '3Gi' } } },
  }),
  cloned('clone-other-class', 'clones into another class (D-03)', {
    between: (scene) =>
      scene.makeClass(`second-${scene.className}`, { parameters: { other: 'yes' } }),
    specOf: (scene) => ({ storageClassName: `second-${scene.className}` }),
  }),
  cloned('clone-twice', 'clones one claim twice at once', {
    between: (scene) => scene.makeClaim('twin', { dataSource: FROM_SOURCE }),
    ends: (scene) => scene.untilBound('twin'),
  }),
  cloned('clone-static', 'clones a static volume', {
    makeSource: staticSource,
    afterwards: stays,
  }),
  rejected('clone-smaller', 'refuses a claim smaller than its source (D-05)', {
    spec: { resources: { requests: { storage: '1023Mi' } } },
  }),
  rejected('clone-smaller-given', 'deletes a volume that is smaller than requested (D-04)', {
    spec: { resources: { requests: { storage: '2Gi' } } },
    answer: cloneAnswer({ capacityBytes: 1024n }),
    ends: calls('DeleteVolume', 1),
  }),
  rejected('clone-no-source-given', 'deletes a volume that is no clone', {
    answer: cloneAnswer({ contentSource: undefined }),
    ends: calls('DeleteVolume', 1),
  }),
  rejected('clone-files-of-block', 'refuses another volume mode than its source’s (D-22, D-26)', {
    source: BLOCK,
  }),
  rejected('clone-foreign', 'refuses a source of another driver (D-20)', {
    makeSource: (scene) =>
      staticSource(scene, {
        csi: { driver: 'other.example.com', volumeHandle: `x-${scene.className}` },
      }),
  }),
  rejected('clone-not-csi', 'refuses a source that is no CSI volume', {
    makeSource: (scene) => staticSource(scene, { csi: undefined, hostPath: { path: '/nowhere' } }),
  }),
  rejected('clone-classless', 'refuses a source without a class (D-07)', {
    makeSource: (scene) =>
      staticSource(scene, { storageClassName: undefined }, { storageClassName: undefined }),
  }),
  rejected('clone-going', 'refuses a source that is being deleted', {
    sourceMetadata: { finalizers: ['example.com/other'] },
    between: async (scene) => {
      await scene.remove(`${scene.claims}/source`);
      await scene.until(
        'the source is being deleted',
        () => scene.claim('source')?.metadata.deletionTimestamp !== undefined,
      );
      await scene.marker();
    },
  }),
  rejected('clone-lost', 'refuses a source that lost its volume (D-11)', {
    between: async (scene) => {
      const name = scene.volume('source')?.metadata.name ?? '';
      await scene.remove(`${VOLUMES}/${name}`);
      await scene.patch(`${VOLUMES}/${name}`, { metadata: { finalizers: null } });
      await scene.until(
        'the source is Lost',
        () => scene.claim('source')?.status?.phase === 'Lost',
      );
      await scene.marker();
    },
  }),
  scenario('clone-later', 'refuses a missing source, and clones it once it is there (D-06)', {
    claim: { spec: { dataSource: FROM_SOURCE } },
    ends: all(refused, (scene) => scene.makeClaim('source'), bound),
  }),
  scenario('clone-bound-later', 'clones a Pending source once it is Bound (D-10)', {
    class: LATE,
    prepare: (scene) => scene.makeClaim('source'),
    claim: {
      annotations: { 'volume.kubernetes.io/selected-node': 'n' },
      spec: { dataSource: FROM_SOURCE },
    },
    ends: all(
      refused,
      (scene) =>
        scene.patch(`${scene.claims}/source`, {
          metadata: { annotations: { 'volume.kubernetes.io/selected-node': 'n' } },
        }),
      bound,
    ),
  }),
  rejected('clone-driver-refuses', 'keeps the finalizer while the driver refuses', {
    answer: refusesClones,
  }),
  rejected('clone-given-up', 'releases a deleted source once its only clone is deleted', {
    answer: refusesClones,
    ends: async (scene) => {
      await scene.remove(`${scene.claims}/source`);
      await scene.until('the clone is refused for it', () =>
        isRefusedFor(scene, 'data', 'being deleted'),
      );
      await scene.remove(`${scene.claims}/data`);
      await scene.until('the source is gone', () => scene.claim('source') === undefined);
    },
  }),
  cloned('clone-source-after', 'releases a source that is deleted after its clone is Bound', {
    afterwards: async (scene) => {
      await scene.remove(`${scene.claims}/source`);
      await scene.until('the source is gone', () => scene.claim('source') === undefined);
    },
  }),
  rejected('clone-source-twice', 'keeps a deleted source until the last of its clones is deleted', {
    between: (scene) => scene.makeClaim('twin', { dataSource: FROM_SOURCE }),
    answer: refusesClones,
    ends: async (scene) => {
      await scene.until(
        'the driver refused both',
        () => new Set(scene.calls('CreateVolume').map(({ about }) => about)).size === 3,
      );
      await scene.remove(`${scene.claims}/source`);
      await scene.until(
        'the source is being deleted',
        () => scene.claim('source')?.metadata.deletionTimestamp !== undefined,
      );
      for (const name of ['data', 'twin'])
        await scene.until(`${name} is refused for it`, () =>
          isRefusedFor(scene, name, 'being deleted'),
        );
      await scene.remove(`${scene.claims}/data`);
      await ignored(scene);
      scene.notes['the source while the twin is Pending'] = scene.claim('source') !== undefined;
      await scene.remove(`${scene.claims}/twin`);
      await scene.until('the source is gone', () => scene.claim('source') === undefined);
    },
  }),
];

interface Clone {
  readonly source?: Fields;
  readonly sourceMetadata?: Fields;
  readonly makeSource?: (scene: Scene) => Promise<unknown>;
  /** Called after the source is Bound and before the clone is created. */
  readonly between?: (scene: Scene) => Promise<unknown>;
  readonly spec?: Fields;
  readonly specOf?: (scene: Scene) => Fields;
  readonly answer?: CallAnswer;
  /** Called after the usual end. */
  readonly ends?: (scene: Scene) => Promise<unknown>;
  readonly afterwards?: (scene: Scene) => Promise<unknown>;
}

function cloned(name: string, title: string, clone: Clone = {}): Scenario {
  return cloning(name, title, {
    ...clone,
    answer: clone.answer ?? noteFinalizers,
    ends: all(bound, clone.ends ?? (() => Promise.resolve())),
  });
}

function rejected(name: string, title: string, clone: Clone = {}): Scenario {
  return cloning(name, title, {
    ...clone,
    ends: all(refused, clone.ends ?? (() => Promise.resolve())),
  });
}

function cloning(name: string, title: string, clone: Clone): Scenario {
  return {
    name,
    title,
    claim: null,
    answer: clone.answer ?? noteFinalizers,
    ...(clone.afterwards === undefined ? {} : { afterwards: clone.afterwards }),
    ends: async (scene) => {
      if (clone.makeSource === undefined)
        await scene.makeClaim('source', clone.source, clone.sourceMetadata);
      else await clone.makeSource(scene);
      await scene.untilBound('source');
      await clone.between?.(scene);
      await scene.makeClaim('data', {
        dataSource: FROM_SOURCE,
        ...clone.spec,
        ...clone.specOf?.(scene),
      });
      await clone.ends?.(scene);
    },
  };
}

/** A claim that is Bound to a static volume. */
async function staticSource(
  scene: Scene,
  volumeSpec: Fields = {},
  claimSpec: Fields = {},
): Promise<void> {
  const name = `static-${scene.className}`;
  await scene.makeVolume(name, {
    spec: {
      storageClassName: scene.className,
      claimRef: { namespace: scene.namespace, name: 'source' },
      persistentVolumeReclaimPolicy: 'Retain',
      ...volumeSpec,
    },
  });
  await scene.create(
    scene.claims,
    claim('source', {
      spec: { storageClassName: scene.className, volumeName: name, ...claimSpec },
    }),
  );
}

function cloneAnswer(changes: Parameters<typeof volumeFor>[1]): CallAnswer {
  return (call) =>
    call.method === 'CreateVolume' && call.create.volumeContentSource !== undefined
      ? volumeFor(call.create, changes)
      : undefined;
}

function isRefusedFor(scene: Scene, name: string, text: string): boolean {
  return scene
    .events()
    .some(({ involvedObject, message }) => involvedObject.name === name && message.includes(text));
}

function refusesClones(call: ScriptedCall): void {
  if (call.method === 'CreateVolume' && call.create.volumeContentSource !== undefined)
    throw status('Internal', 'not now');
}

/** The finalizers that keep the source while the driver copies it. */
async function noteFinalizers(call: Parameters<CallAnswer>[0], scene: Scene): Promise<void> {
  if (
    call.method !== 'CreateVolume' ||
    call.create.volumeContentSource === undefined ||
    call.count > 1
  )
    return;
  const reply = await scene.api.get(`${scene.claims}/source`);
  scene.notes['finalizers of the source during CreateVolume'] =
    (reply.body as { metadata?: { finalizers?: unknown } }).metadata?.finalizers ?? [];
}
