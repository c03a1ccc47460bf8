import type { Scene } from '../../../harness/differential/scene.ts';
import { claim, paths } from '../../../conformance/objects.ts';
import type { Fields } from '../../../conformance/connection.ts';
import { makeSnapshot } from '../../../harness/differential/snapshot-objects.ts';
import {
  bound,
  refused,
  scenario,
  type Scenario,
  stays,
} from '../../../harness/differential/scenario.ts';

const SNAPSHOT_GROUP = 'snapshot.storage.k8s.io';
const SNAP = { apiGroup: SNAPSHOT_GROUP, kind: 'VolumeSnapshot', name: 'snap' };

interface Grant {
  readonly namespaceOf?: (scene: Scene) => string;
  readonly from?: Fields;
  readonly to?: Fields;
  readonly spec?: Fields | ((scene: Scene) => Fields);
}

/** Grants that do not allow to restore the snapshot. */
const REFUSED: Readonly<Record<string, readonly [title: string, given: Grant | null]>> = {
  'at-home': [
    'refuses a grant of the wrong namespace (C-28)',
    { namespaceOf: (scene) => scene.namespace },
  ],
  'from-group': ['refuses a grant from another group (C-29)', { from: { group: 'wrong.io' } }],
  'from-kind': ['refuses a grant from another kind (C-30)', { from: { kind: 'Wrong' } }],
  'from-namespace': [
    'refuses a grant from another namespace (C-31)',
    { from: { namespace: 'wrong' } },
  ],
  'to-kind': ['refuses a grant to another kind (C-32)', { to: { kind: 'Wrong' } }],
  'to-group': ['refuses a grant to another group (C-33)', { to: { group: 'wrong.io' } }],
  'to-name': ['refuses a grant to another name (C-34)', { to: { name: 'wrong' } }],
  empty: ['refuses an empty grant (C-35)', { spec: { from: [], to: [] } }],
  halves: ['does not combine `from` entries that match in part', { spec: partialMatches }],
};

/** Sources in other namespaces, with the feature gate on. */
export const crossNamespace: readonly Scenario[] = [
  fromSnapshot('cross-snap', 'restores from another namespace that grants it (C-20)', {}),
  fromSnapshot('cross-snap-named', 'restores the very snapshot that is granted (C-21)', {
    to: { name: 'snap' },
  }),
  fromSnapshot('cross-snap-name-empty', 'treats an empty name as every name (C-23)', {
    to: { name: '' },
  }),
  ...Object.entries(REFUSED).map(([name, [title, given]]) => ({
    ...fromSnapshot(`cross-snap-${name}`, title, given, refused),
    afterwards: stays,
  })),
  scenario('cross-snap-own', 'restores from the own namespace without a grant (C-24)', {
    prepare: (scene) => makeSnapshot(scene, 'snap'),
    claim: (scene) => ({ spec: { dataSourceRef: { ...SNAP, namespace: scene.namespace } } }),
  }),
  scenario('cross-snap-later', 'restores once the grant exists (C-26)', {
    ...snapshotElsewhere(null),
    ends: async (scene) => {
      await refused(scene);
      await grant(scene, {}, SNAP);
      await bound(scene);
    },
  }),
  fromClaim('cross-clone', 'clones from another namespace that grants it (D-32)', {}, bound),
  fromClaim(
    'cross-clone-named',
    'clones the very claim that is granted (D-33)',
    { to: { name: 'source' } },
    bound,
  ),
  fromClaim(
    'cross-clone-to-name',
    'refuses to clone another claim than the granted one (D-46)',
    { to: { name: 'wrong' } },
    refused,
  ),
  fromClaim(
    'cross-clone-to-group',
    'refuses to clone by the grant of another group (D-44)',
    { to: { group: 'wrong.io' } },
    refused,
  ),
  fromClaim('cross-clone-no-grant', 'refuses to clone without a grant (D-48)', null, refused),
];

function fromSnapshot(
  name: string,
  title: string,
  given: Grant | null,
  ends: Scenario['ends'] = bound,
): Scenario {
  return { name, title, ...snapshotElsewhere(given), ends };
}

function snapshotElsewhere(given: Grant | null): Pick<Scenario, 'prepare' | 'claim'> {
  return {
    prepare: async (scene) => {
      await scene.makeNamespace(scene.otherNamespace);
      await makeSnapshot(scene, 'snap', { namespace: scene.otherNamespace });
      if (given !== null) await grant(scene, given, SNAP);
      await waitForGrants(scene);
    },
    claim: (scene) => ({ spec: { dataSourceRef: { ...SNAP, namespace: scene.otherNamespace } } }),
  };
}

function fromClaim(
  name: string,
  title: string,
  given: Grant | null,
  ends: Scenario['ends'],
): Scenario {
  return {
    name,
    title,
    claim: null,
    ends: async (scene) => {
      await scene.makeNamespace(scene.otherNamespace);
      if (given !== null)
        await grant(scene, given, { apiGroup: '', kind: 'PersistentVolumeClaim', name: 'source' });
      await scene.create(
        paths(scene.otherNamespace).claims,
        claim('source', { spec: { storageClassName: scene.className } }),
      );
      await scene.untilBound('source');
      await waitForGrants(scene);
      const ref = {
        kind: 'PersistentVolumeClaim',
        name: 'source',
        namespace: scene.otherNamespace,
      };
      await scene.makeClaim('data', { dataSourceRef: ref });
      await ends(scene);
    },
  };
}

/** Waits until upstream has the grants in its cache: it reads them nowhere else. */
function waitForGrants(scene: Scene): Promise<void> {
  return scene.marker();
}

function grant(
  scene: Scene,
  given: Grant,
  source: { readonly apiGroup: string; readonly kind: string; readonly name: string },
): Promise<unknown> {
  const namespace = given.namespaceOf?.(scene) ?? scene.otherNamespace;
  const spec = typeof given.spec === 'function' ? given.spec(scene) : given.spec;
  return scene.create(
    `/apis/gateway.networking.k8s.io/v1beta1/namespaces/${namespace}/referencegrants`,
    {
      apiVersion: 'gateway.networking.k8s.io/v1beta1',
      kind: 'ReferenceGrant',
      metadata: { name: 'grant' },
      spec: spec ?? {
        from: [
          { group: '', kind: 'PersistentVolumeClaim', namespace: scene.namespace, ...given.from },
        ],
        to: [{ group: source.apiGroup, kind: source.kind, ...given.to }],
      },
    },
  );
}

/** Two `from` entries that each match only in part; together they allow nothing. */
function partialMatches(scene: Scene): Fields {
  return {
    from: [
      { group: '', kind: 'PersistentVolumeClaim', namespace: 'wrong' },
      { group: 'wrong.io', kind: 'PersistentVolumeClaim', namespace: scene.namespace },
    ],
    to: [{ group: SNAPSHOT_GROUP, kind: 'VolumeSnapshot' }],
  };
}
