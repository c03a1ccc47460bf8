import { fromBinary } from '@bufbuild/protobuf';
import { CreateVolumeRequestSchema } from '../csi/generated/csi_pb.ts';
import * as keys from '../kube/keys.ts';
import type { Class, NewVolume, Volume } from '../kube/objects.ts';
import { translateClass } from '../migration/plugins.ts';
import { catchRefusal } from '../rules/rule.ts';
import { deletionSecret } from './deletion.ts';
import { type DriverNames, isKnownAs } from './driver-facts.ts';
import { type NamingOptions, type PlannedRequest, volumeName } from './persistent-volume.ts';
import { type SecretPurpose, type SecretRef, secretRef } from './secret-ref.ts';

/** What a volume record has to fit to. */
export interface RecordOwner {
  readonly driver: DriverNames;
  readonly options: NamingOptions;
  /** The claim that the record is for; without annotations if it is gone. Then only the secret of
   * CreateVolume and DeleteVolume is checked: nobody uses the PV of a claim that is gone. */
  readonly claim: {
    readonly uid: string;
    readonly namespace: string;
    readonly name: string;
    readonly annotations?: Readonly<Record<string, string>> | undefined;
  };
  /** The class of the claim or PV; undefined if both are gone. */
  readonly className: string | undefined;
  readonly classOf: (name: string) => Class | undefined;
  /** The PV that the record is for, where there is one. Its references are as good as those of
   * the class. */
  readonly volume?: Pick<Volume, 'metadata' | 'spec'>;
}

/** Every field that a planned PV has before the driver answers. */
const SPEC_FIELDS: ReadonlySet<string> = new Set([
  'accessModes',
  'mountOptions',
  'persistentVolumeReclaimPolicy',
  'volumeMode',
  'claimRef',
  'storageClassName',
  'volumeAttributesClassName',
  'csi',
]);

/** Why a stored request is not one that sutler has planned for this claim: somebody else has
 * written to Redis, or the class has changed. It can't tell every forged request from ours; seals
 * can (src/records/record-seal.ts).
 * @returns undefined for a request that fits */
export function whyUnfit(stored: PlannedRequest, owner: RecordOwner): string | undefined {
  const { claim, driver, options } = owner;
  const { metadata, spec } = stored.pvTemplate.volume;
  const { name } = metadata;
  if (spec.csi.driver !== driver.name) return `it is for driver ${spec.csi.driver}`;
  const { uid, namespace, name: claimName } = spec.claimRef ?? {};
  if (uid !== claim.uid || namespace !== claim.namespace || claimName !== claim.name)
    return `it is for claim ${namespace}/${claimName} with UID ${uid}`;
  // A prefix other than today's is one of before.
  if (!name.endsWith(`-${claim.uid}`) && name !== volumeName(claim.uid, options))
    return `its PersistentVolume is ${name}, which is not the name for this claim`;
  if (nameInRequest(stored.request) !== name) return 'its request names another volume';
  const foreign = Object.keys(spec).find((field) => !SPEC_FIELDS.has(field));
  if (foreign !== undefined) return `its PersistentVolume has spec.${foreign}`;
  return whySecretUnfit(stored, owner);
}

function nameInRequest(request: Uint8Array): string | undefined {
  try {
    return fromBinary(CreateVolumeRequestSchema, request).name;
  } catch {
    return undefined;
  }
}

/** A reference as a PV has it. */
type PartialRef = Partial<SecretRef> | undefined;

/** A secret is sent only if the class, or the PV, gives it today. */
function whySecretUnfit(stored: PlannedRequest, owner: RecordOwner): string | undefined {
  const { claim, driver, classOf } = owner;
  const { metadata, spec } = stored.pvTemplate.volume;
  const ofVolume = owner.volume === undefined ? [] : namedSecrets(owner.volume);
  const named = [['Provisioner', stored.secret] as const, ...namedSecrets(stored.pvTemplate.volume)]
    .filter(([purpose]) => purpose === 'Provisioner' || claim.annotations !== undefined)
    .filter(([, ref]) => ref !== undefined && !ofVolume.some(([, other]) => isSame(ref, other)));
  if (named.length === 0) return undefined;
  const className = owner.className ?? spec.storageClassName ?? '';
  const cls = classOf(className);
  if (cls === undefined || !isKnownAs(driver, cls.provisioner))
    return `it names a secret, and this driver has no StorageClass ${className}`;
  return catchRefusal(
    () => {
      const { parameters = {} } = cls.provisioner === driver.inTreeName ? translateClass(cls) : cls;
      const { annotations = {} } = claim;
      const context = { volumeName: metadata.name, claim: { ...claim, annotations } };
      const other = named.find(
        ([purpose, ref]) => !isSame(ref, secretRef(purpose, parameters, context)),
      );
      if (other === undefined) return undefined;
      const [purpose, ref] = other;
      return (
        `it names secret ${ref?.namespace}/${ref?.name} (${purpose}), ` +
        `which StorageClass ${className} does not give today`
      );
    },
    ({ message }) => `it names a secret, and StorageClass ${className} gives none: ${message}`,
  );
}

function namedSecrets({
  metadata,
  spec: { csi },
}: Pick<NewVolume, 'metadata' | 'spec'>): readonly (readonly [SecretPurpose, PartialRef])[] {
  const { annotations = {} } = metadata;
  const name = annotations[keys.MODIFY_SECRET_NAME];
  const namespace = annotations[keys.MODIFY_SECRET_NAMESPACE];
  const modify = name === undefined || namespace === undefined ? undefined : { name, namespace };
  return [
    ['Provisioner', deletionSecret(metadata)],
    ['ControllerModify', modify],
    ['ControllerPublish', csi?.controllerPublishSecretRef],
    ['NodeStage', csi?.nodeStageSecretRef],
    ['NodePublish', csi?.nodePublishSecretRef],
    ['ControllerExpand', csi?.controllerExpandSecretRef],
    ['NodeExpand', csi?.nodeExpandSecretRef],
  ];
}

function isSame(a: PartialRef, b: PartialRef): boolean {
  return a?.name === b?.name && a?.namespace === b?.namespace;
}
