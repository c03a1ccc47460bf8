import assert from 'node:assert/strict';
import { Code, type CodeName } from '#src/csi/status.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import type { Claim } from '#src/kube/objects.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import { claims, type Resource } from '#src/kube/resources.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import { aCluster, type TestNode } from '../topology/fake-cluster.ts';
import type { Bed } from './rig.ts';

type Change = Partial<Dependencies>;
type Method = DriverCall['method'];

/** What the rig offers for cases of claims: faults of driver and API server, and what a run leaves
 * behind. */
export function claimTools(bed: Bed) {
  const refOf = ({ metadata: { namespace = '', name } }: Claim) => ({ namespace, name });
  /** The API server with some of its calls replaced. */
  const kubeWith = (change: Partial<Dependencies['kube']>): Pick<Dependencies, 'kube'> => {
    const { kube } = bed;
    return {
      kube: {
        get: (...args) => kube.get(...args),
        list: (...args) => kube.list(...args),
        create: (...args) => kube.create(...args),
        patch: (...args) => kube.patch(...args),
        update: (...args) => kube.update(...args),
        delete: (...args) => kube.delete(...args),
        ...change,
      },
    };
  };
  /** Makes the driver work normally again. */
  const endFaults = (): void => {
    bed.onCall = () => undefined;
  };
  return {
    kubeWith,
    endFaults,
    /** What a claim's job knows of its calls. `none` (upstream: Finished): nothing is begun, or
     * there is no job. `open` (InBackground): a call may be at work. `begun`: calls of earlier runs
     * are over. */
    async stateOf(claim: Claim): Promise<'none' | 'open' | 'begun'> {
      const leftMs = await bed.doubtMs(claim);
      if (leftMs === undefined) return 'none';
      return leftMs > 0 ? 'open' : 'begun';
    },
    /** Reads the claim again. */
    claimNow: (claim: Claim) => bed.kube.get<Claim>(claims, refOf(claim)),
    /** Edits a claim as a user would. */
    editClaim: (claim: Claim, body: object, subresource?: 'status') =>
      bed.kube.patch<Claim>(claims, refOf(claim), {
        type: 'merge',
        body,
        ...(subresource === undefined ? {} : { subresource }),
      }),
    /** Deletes a claim with all its finalizers. */
    async removeClaim(claim: Claim): Promise<void> {
      const body = { metadata: { finalizers: null } };
      await bed.kube.patch(claims, refOf(claim), { type: 'merge', body });
      await bed.kube.delete(claims, refOf(claim));
    },
    callsOf: (of: Method) => bed.driver.calls.filter(({ method }) => method === of),
    /** The events that were recorded, as "Warning ProvisioningFailed text", without those of slow
     * calls: on a busy machine any call may be slow. */
    messages: (): readonly string[] =>
      bed.events
        .filter(({ message }) => !message.startsWith('External provisioner is provisioning volume'))
        .map(({ type, reason, message }) => `${type} ${reason} ${message}`),
    /** Makes the driver refuse every call of a method. */
    failWith(code: CodeName, message = 'no', failing: Method = 'CreateVolume'): void {
      bed.onCall = ({ method }) => {
        if (method === failing) throw new DriverStatus(Code[code], message);
      };
    },
    /** Makes the driver return this answer to every CreateVolume, without creating anything. */
    answerWith(answer: unknown): void {
      bed.onCall = ({ method }) => (method === 'CreateVolume' ? answer : undefined);
    },
    /** Makes the driver answer DeadlineExceeded to every call of a method after it has done it. */
    loseAnswers(of: Method): void {
      bed.onCall = async ({ method, proceed }) => {
        if (method !== of) return;
        await proceed();
        throw new DriverStatus(Code.DeadlineExceeded, 'out of time');
      };
    },
    /** A run whose call has an unknown end: the driver creates the volume, its answer is lost. */
    async loseAnswer(claim: Claim, parts: Change = {}): Promise<void> {
      this.loseAnswers('CreateVolume');
      assert.equal((await bed.provision(claim, parts)).kind, 'running');
      endFaults();
    },
    /** The API server, which refuses what the test names. */
    refusing(
      verb: 'get' | 'create' | 'patch' | 'delete',
      code: number,
      isAsked: (plural: string, name: string) => boolean = () => true,
    ): Pick<Dependencies, 'kube'> {
      const reason = code === 404 ? 'NotFound' : 'x';
      const error = new KubeError({ code, reason, serverMessage: 'not for you' });
      const refuse =
        (call: (...args: never[]) => Promise<unknown>) =>
        (...args: unknown[]): Promise<never> => {
          const [resource, ref] = args as [Resource, { name?: string } | string | undefined];
          const name = typeof ref === 'object' ? (ref.name ?? '') : '';
          if (isAsked(resource.plural, name)) return Promise.reject(error);
          return call(...(args as never[])) as Promise<never>;
        };
      return kubeWith({ [verb]: refuse(bed.kube[verb].bind(bed.kube)) });
    },
    /** Parts with a driver that supports topology.
     * @param nodes by default one with the name `node` */
    withTopology(
      nodes: readonly TestNode[] = [{ name: 'node', labels: { zone: 'a' }, keys: ['zone'] }],
    ): Pick<Dependencies, 'topology' | 'facts'> {
      const facts = bed.parts.facts();
      const pluginCapabilities = new Set(facts.pluginCapabilities);
      pluginCapabilities.add('VOLUME_ACCESSIBILITY_CONSTRAINTS');
      return { topology: () => aCluster(nodes), facts: () => ({ ...facts, pluginCapabilities }) };
    },
  };
}
