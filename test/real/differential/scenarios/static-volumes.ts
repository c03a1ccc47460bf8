import type { Scene } from '../../../harness/differential/scene.ts';
import { VOLUMES } from '../../../conformance/objects.ts';
import type { Fields } from '../../../conformance/connection.ts';
import { finalizer, release } from './deletion.ts';
import {
  calls,
  ignored,
  scenario,
  type Scenario,
  stays,
} from '../../../harness/differential/scenario.ts';

const P = 'csi.storage.k8s.io/';

interface Static {
  readonly class?: Scenario['class'];
  readonly metadata?: Fields;
  readonly spec?: Fields;
  readonly specOf?: (scene: Scene) => Fields;
  readonly prepare?: (scene: Scene) => Promise<unknown>;
  /** false: no claim is created for the volume. */
  readonly isClaimed?: boolean;
  readonly ends?: (scene: Scene) => Promise<unknown>;
  readonly afterwards: (scene: Scene) => Promise<unknown>;
}

/** Static volumes: those that a user created. */
export function staticVolumes(): readonly Scenario[] {
  const fixed = (name: string, title: string, given: Static): Scenario =>
    scenario(name, title, {
      class: given.class ?? {},
      claim: null,
      prepare: async (scene) => given.prepare?.(scene),
      ends: async (scene) => {
        const volumeName = `static-${scene.className}`;
        const isClaimed = given.isClaimed ?? true;
        const claimRef = { namespace: scene.namespace, name: 'data' };
        await scene.makeVolume(volumeName, {
          ...(given.metadata === undefined ? {} : { metadata: given.metadata }),
          spec: {
            storageClassName: scene.className,
            persistentVolumeReclaimPolicy: 'Delete',
            ...(isClaimed ? { claimRef } : {}),
            ...given.spec,
            ...given.specOf?.(scene),
          },
        });
        if (isClaimed) {
          await scene.makeClaim('data', { volumeName });
          await scene.untilBound();
        }
        await (given.ends ?? ignored)(scene);
      },
      afterwards: given.afterwards,
    });
  const goes = (scene: Scene): Promise<void> => scene.deleteAll();
  const keeps = async (scene: Scene): Promise<void> => {
    await release(scene);
    await ignored(scene);
  };
  const foreign = (scene: Scene): Fields => ({
    csi: { driver: 'other.example.com', volumeHandle: `x-${scene.className}` },
  });
  return [
    fixed('static-delete', 'adds its finalizer to a static volume and deletes it (P-41, R-24)', {
      afterwards: goes,
    }),
    fixed('static-retain', 'ignores a static volume whose policy is Retain (P-09)', {
      spec: { persistentVolumeReclaimPolicy: 'Retain' },
      afterwards: keeps,
    }),
    fixed('static-foreign', 'ignores the volumes of another driver (P-73)', {
      specOf: foreign,
      afterwards: keeps,
    }),
    fixed('static-by-other', 'ignores a volume of another provisioner (P-71)', {
      metadata: { annotations: { 'pv.kubernetes.io/provisioned-by': 'other.example.com' } },
      afterwards: keeps,
    }),
    fixed('static-secret', 'deletes a static volume with the secret of its class (F-16)', {
      class: (scene) => ({
        parameters: {
          [`${P}secret-name`]: '${pvc.name}',
          [`${P}secret-namespace`]: scene.namespace,
        },
      }),
      prepare: (scene) => scene.makeSecret('data', { user: 'anna' }),
      afterwards: goes,
    }),
    fixed('static-beta-class', 'finds the class of a volume by the beta annotation (F-16)', {
      class: (scene) => ({
        parameters: {
          [`${P}provisioner-secret-name`]: 'creds',
          [`${P}provisioner-secret-namespace`]: scene.namespace,
        },
      }),
      prepare: (scene) => scene.makeSecret('creds', { user: 'anna' }),
      specOf: () => ({}),
      afterwards: async (scene) => {
        const path = `${VOLUMES}/static-${scene.className}`;
        await scene.patch(path, {
          metadata: {
            annotations: { 'volume.beta.kubernetes.io/storage-class': 'a-class-that-is-gone' },
          },
        });
        await ignored(scene);
        await scene.deleteAll();
      },
    }),
    fixed('static-available', 'ignores a volume without a claim (P-15)', {
      isClaimed: false,
      afterwards: stays,
    }),
    fixed('static-released', 'deletes a volume whose claim never existed (R-24)', {
      isClaimed: false,
      specOf: (scene) => ({
        claimRef: {
          namespace: scene.namespace,
          name: 'gone',
          uid: '00000000-0000-4000-8000-000000000000',
        },
      }),
      ends: calls('DeleteVolume', 1),
      afterwards: (scene) => scene.until('the volume is gone', () => scene.volumes().length === 0),
    }),
    fixed('static-unprotected', 'deletes no volume that lacks our finalizer (P-34)', {
      spec: { persistentVolumeReclaimPolicy: 'Retain' },
      afterwards: async (scene) => {
        const path = `${VOLUMES}/static-${scene.className}`;
        await scene.patch(path, { metadata: { finalizers: ['example.com/other'] } });
        await release(scene);
        await scene.remove(path);
        await scene.patch(path, { spec: { persistentVolumeReclaimPolicy: 'Delete' } });
        await ignored(scene);
      },
    }),
    fixed('static-attributes', 'changes nothing else of a static volume', {
      metadata: {
        annotations: { mine: 'x' },
        labels: { mine: 'y' },
        finalizers: ['example.com/other'],
      },
      afterwards: async (scene) => {
        await finalizer(scene, true);
      },
    }),
  ];
}
