import { CLONE_PROTECTION } from '../kube/keys.ts';
import type { Claim, Class, Volume } from '../kube/objects.ts';
import { claims, volumes } from '../kube/resources.ts';
import { ofSource, reworded, statedBytes } from './data-source.ts';
import type { ContentInput, ContentSource } from './data-source.ts';
import { RefusedError } from './provisioning-options.ts';
import { notFound, orUntilChanged, read, untilChanged } from './rule.ts';
import type { Rule } from './rule.ts';

/** The volume that a claim is cloned from, if it can be; the checks come in upstream's order (spec
 * 02 §7.7). The classes of both claims may differ.
 * @throws RefusedError that waits for the source claim or its volume, whichever is in the way */
export function cloneSource(input: ContentInput): Rule<ContentSource> {
  return ofSource(input.source, clonedFrom(input));
}

function* clonedFrom(input: ContentInput): Rule<ContentSource> {
  const { claim, cls } = input;
  const source = yield* sourceClaim(input);
  const { name } = source.metadata;
  checkIsSettled(source);
  if (source.spec.storageClassName === undefined)
    throw untilChanged(claims, source, `the source PVC (${name}) storageclass cannot be empty`);
  if (claim.spec.storageClassName === undefined)
    throw new RefusedError(
      `the requested PVC (${claim.metadata.name}) storageclass cannot be empty`,
    );
  checkSize(source, input.requestedBytes);
  const volumeName = source.spec.volumeName ?? '';
  if (volumeName === '')
    throw untilChanged(claims, source, `volume name is empty in source PVC ${name}`);
  // The user is told no more than this, as upstream has it; the reason is the error's cause.
  const reading = orUntilChanged(claims, source, sourceVolume(volumeName, source, cls));
  const volume = yield* reworded(reading, () => 'claim in dataSource not bound or invalid');
  checkMode(source, volume, claim);
  return {
    request: { type: { case: 'volume', value: { volumeId: volume.handle } } },
    resource: claims,
    object: source,
    finalizer: CLONE_PROTECTION,
  };
}

function sourceClaim({ source, claim }: ContentInput): Rule<Claim> {
  const { name, namespace } = source;
  // The namespace in the message is the claim's also where the source is in another one, and the
  // kind is in the singular: upstream's words.
  const words = `error getting PVC ${name} (namespace "${claim.metadata.namespace}") from api server`;
  const reading = read<Claim>(claims, { namespace, name }, words);
  return reworded(reading, (message) =>
    message.replace(notFound(claims, name), `persistentvolumeclaim "${name}" not found`),
  );
}

/** Bound, and here to stay. */
function checkIsSettled(source: Claim): void {
  const { name, deletionTimestamp } = source.metadata;
  const phase = source.status?.phase;
  if (phase !== 'Bound')
    throw untilChanged(
      claims,
      source,
      `the PVC DataSource ${name} must have a status of Bound.  Got ${phase ?? 'no phase'}`,
    );
  if (deletionTimestamp !== undefined)
    throw untilChanged(claims, source, `the PVC DataSource ${name} is currently being deleted`);
}

/** Compares with what the source asked for, not with what it got. */
function checkSize(source: Claim, requestedBytes: bigint): void {
  const text = source.spec.resources?.requests?.storage ?? '0';
  const sourceBytes = statedBytes(claims, source, {
    field: 'spec.resources.requests.storage',
    text,
  });
  if (requestedBytes >= sourceBytes) return;
  const rule =
    'error, new PVC request must be greater than or equal in size to the specified PVC data source';
  throw untilChanged(
    claims,
    source,
    `${rule}, requested ${requestedBytes} but source is ${sourceBytes}`,
  );
}

/** What a clone has to know of the source's volume. */
interface SourceVolume {
  readonly handle: string;
  readonly mode: Volume['spec']['volumeMode'];
}

function* sourceVolume(name: string, source: Claim, cls: Class): Rule<SourceVolume> {
  const volume = yield* read<Volume>(volumes, { name });
  const { csi, claimRef, volumeMode } = volume.spec;
  const unfit = (why: string): RefusedError =>
    untilChanged(volumes, volume, `volume ${name} ${why}`);
  if (csi === undefined) throw unfit('is no CSI volume');
  if (csi.driver !== cls.provisioner)
    throw unfit(`belongs to driver ${csi.driver}, the class to ${cls.provisioner}`);
  const { uid, namespace } = source.metadata;
  if (
    claimRef?.uid !== uid ||
    claimRef.namespace !== namespace ||
    claimRef.name !== source.metadata.name
  )
    throw unfit('is bound to another claim');
  if (volume.status?.phase !== 'Bound')
    throw unfit(`is ${volume.status?.phase ?? 'without phase'}`);
  return { handle: csi.volumeHandle, mode: volumeMode };
}

/** No mode means Filesystem, on both sides. */
function checkMode(source: Claim, volume: SourceVolume, claim: Claim): void {
  const has = volume.mode ?? 'Filesystem';
  const wanted = claim.spec.volumeMode ?? 'Filesystem';
  if (has === wanted) return;
  const rule = 'the source PVC and destination PVCs must have the same volume mode for cloning.';
  throw untilChanged(claims, source, `${rule}  Source is ${has}, but new PVC requested ${wanted}`);
}
