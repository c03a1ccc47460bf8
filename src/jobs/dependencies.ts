import { randomInt } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { CapacityHints } from '../capacity/hints.ts';
import type { DriverConnections } from '../connections/open-connections.ts';
import type { DriverContext } from '../driver-config/driver-set.ts';
import { doubtMsOf } from '../election/flags.ts';
import type { LeaseView } from '../election/lease-view.ts';
import type { OwnLeader } from '../election/own-leader.ts';
import type { GatewayPool } from '../gateway-client/pool.ts';
import { redisSharedHandles } from '../hints/shared-handles.ts';
import { type JournalPlace, listOpenSources } from '../journal/list-journal.ts';
import type { KubeClient } from '../kube/client.ts';
import { eventComponent, EventRecorder } from '../kube/events.ts';
import type { Claim, Volume } from '../kube/objects.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import type { JobKey } from '../queue/contract.ts';
import type { Begun, Run } from '../queue/run.ts';
import type { RedisLink } from '../redis/connection.ts';
import { type Clock, systemClock } from '../runtime/clock.ts';
import { type Logger, traceStep } from '../runtime/log.ts';
import { type DriverFacts, supportsTopology } from '../volumes/driver-facts.ts';
import type { FeatureGates, ProvisioningOptions } from '../volumes/flags.ts';
import type { VolumeIdentity } from '../volumes/handles.ts';
import type { Caches, DriverCaches } from './caches.ts';
import { RefusedSizes } from './claim/take-claim.ts';
import { ClassLimits } from './class-limit.ts';
import type { flags } from './flags.ts';
import { createOperationCounts, type OperationCounts } from './operation-counts.ts';
import { VolumeLists } from './volume/volume-lists.ts';

/** The calls to the API server that runs make. */
export type Kube = Pick<KubeClient, 'get' | 'list' | 'create' | 'patch' | 'update' | 'delete'>;

/** Where events go. */
export type Events = Pick<EventRecorder, 'record'>;

/** What the runs of one driver's jobs work with. It is made once for each driver; runs keep no
 * state in it. Small functions take the fields that they need. */
export interface Dependencies extends Pick<DriverCaches, 'classOf' | 'attachedTo' | 'topology'> {
  readonly kube: Kube;
  readonly events: Events;
  /** A claim from ingest's watch in this process, if that watch has received something lately. */
  readonly freshClaim: OwnLeader['freshClaim'];
  /** The driver's present name and capabilities. */
  readonly facts: () => DriverFacts;
  /** The driver, directly or through the gateway that each call names. */
  readonly csi: Pick<GatewayPool, 'createVolume' | 'deleteVolume' | 'getCapacity'>;
  /** Deadline of one call to the driver (--timeout). */
  readonly timeoutMs: number;
  /** The gateway to call before a leader has named the active one: the only gateway, or '' if there
   * are several. A call to '' is refused. */
  readonly endpoint: string;
  readonly refusedSizes: RefusedSizes;
  /** Whether the driver may be called now. */
  readonly lease: LeaseView;
  readonly journal: JournalPlace;
  /** The snapshots and claims that claims in the journal are created from. */
  readonly openSources: () => Promise<ReadonlySet<string>>;
  /** The limits of classes. */
  readonly classLimits: Pick<ClassLimits, 'look' | 'take' | 'end'>;
  /** The names of PVs that may have this handle: from ingest's published view or, without one, from
   * a list of all PVs, which may take long.
   * @throws RedisUnavailable, KubeError */
  readonly sharersOf: (volume: VolumeIdentity) => Promise<readonly string[]>;
  /** The flags that the rules of src/volumes/ read. */
  readonly options: ProvisioningOptions;
  /** D: how long after a mark calls may be at work in the driver, and the run may write its object.
   */
  readonly doubtMs: number;
  /** Longest delay after a failure (--retry-interval-max); also the delay after an infeasible
   * request. */
  readonly retryMaxMs: number;
  /** Whether a process that serves one node takes claims that bind at once
   * (--node-deployment-immediate-binding). */
  readonly bindsAtOnce: boolean;
  readonly counts: OperationCounts;
  /** Sends hints to ingest. */
  readonly capacity: Pick<CapacityHints, 'creationFailed' | 'volumeChanged'>;
  readonly log: Logger;
  readonly clock: Clock;
}

/** One run of a job, with what it reads first. */
export interface JobRun extends Dependencies {
  readonly job: JobKey;
  readonly run: Run;
  /** When the run began, Unix ms. Whatever it reads is at least as new. */
  readonly startMs: number;
  /** What earlier runs have begun. */
  readonly begun: Begun;
}

/** One run of a claim's job. */
export interface ClaimRun extends JobRun {
  /** Undefined when the claim is gone. */
  readonly claim: Claim | undefined;
}

/** One run that deletes a PV. */
export interface VolumeRun extends JobRun {
  readonly volume: Volume;
}

/** The context of one driver in jobs. */
export type JobsContext = DriverContext<typeof flags>;

/** What all drivers of a jobs process share, beside its connections. */
export interface SharedParts {
  /** The connection of all consumers of this process. */
  readonly workerLink: RedisLink;
  readonly caches: Caches;
  /** Set if ingest runs in this process, with its own Redis. */
  readonly ownLeader?: OwnLeader | undefined;
}

/** How long a key keeps its place in the limit of its class after its last run must have ended. */
const KEEP_PLACE_MS = 120_000;

/** Makes what the runs of claims and volumes work with. */
export function buildDependencies(
  { flags, env, closers, log, metrics }: JobsContext,
  { kube, gateways, link, driver: watched }: DriverConnections,
  parts: {
    readonly caches: DriverCaches;
    readonly lease: LeaseView;
    readonly journal: JournalPlace;
    readonly gates: FeatureGates;
    readonly ownLeader: OwnLeader | undefined;
  },
): Dependencies {
  const { caches, gates, lease, journal, ownLeader } = parts;
  const { driver } = journal;
  const component = eventComponent(driver, env);
  const events = new EventRecorder({ client: kube, component, log, metrics });
  closers.add('events', () => events.close(2_000));
  const place = { redis: link.redis, prefix: flags.redisPrefix, driver };
  const published = redisSharedHandles(place);
  const lists = new VolumeLists(kube);
  const inTreeName = inTreeNameOf(driver);
  const ownNode = ownLeader?.node;
  const ofNode = ownNode === undefined ? '' : `-${ownNode}`;
  const identity = `${Date.now()}-${randomInt(10_000)}-${driver}${ofNode}`;
  const facts = () => ({ ...watched.current(), inTreeName, ownNode });
  return {
    kube: traceCalls(kube, 'kube', log),
    events,
    classOf: caches.classOf,
    attachedTo: caches.attachedTo,
    topology: () => (supportsTopology(facts(), gates) ? caches.topology() : undefined),
    freshClaim: (key) => ownLeader?.freshClaim(key),
    facts,
    csi: traceCalls(gateways, 'csi', log),
    timeoutMs: flags.timeoutMs,
    endpoint: gateways.soleAddress,
    refusedSizes: new RefusedSizes(systemClock),
    lease,
    journal,
    openSources: () => listOpenSources(kube, journal),
    classLimits: new ClassLimits({ ...place, keepMs: doubtMsOf(flags) + KEEP_PLACE_MS }),
    sharersOf: async (volume) => (await published.sharersOf(volume)) ?? lists.sharersOf(volume),
    options: { ...flags, gates, identity },
    doubtMs: doubtMsOf(flags),
    retryMaxMs: flags.retryIntervalMaxMs,
    bindsAtOnce: flags.nodeDeploymentImmediateBinding,
    counts: createOperationCounts(metrics),
    capacity: new CapacityHints(flags.enableCapacity ? place : undefined, log),
    log,
    clock: systemClock,
  };
}

/** With -v=6, wraps the object: logs start and duration of each call that returns a promise.
 * Otherwise returns the object as it is. */
function traceCalls<T extends object>(target: T, name: string, log: Logger): T {
  if (!log.isLevelEnabled('trace')) return target;
  return new Proxy(target, {
    get(_, property) {
      const value: unknown = Reflect.get(target, property, target);
      if (typeof value !== 'function') return value;
      return (...args: readonly unknown[]): unknown => {
        const startedMs = performance.now();
        const result: unknown = Reflect.apply(value, target, args);
        if (!(result instanceof Promise)) return result;
        return result.finally(() => traceStep(log, `${name}.${String(property)}`, startedMs));
      };
    },
  });
}
