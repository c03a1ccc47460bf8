import { describe, it } from 'node:test';
import { claims, volumes } from '#src/kube/resources.ts';
import { ProcessBed } from '../harness/process-bed.ts';
import { isReady } from '../harness/run-main.ts';
import { until } from '../harness/until.ts';

describe('jobs', { concurrency: true }, () => {
  for (const [where, gatewayAheadMs] of [
    ['ahead of', 60_000],
    ['behind', -60_000],
  ] as const)
    it(`create and delete by a gateway a minute ${where} them`, async () => {
      const bed = await ProcessBed.open({ gatewayAheadMs });
      await bed.startIngest();
      const jobs = await bed.startJobs();
      await until(() => isReady(jobs), 'jobs are ready');
      const claim = await bed.newClaim();
      await until(() => bed.isBound(claim), 'the claim is bound');
      const { namespace = '', name } = claim.metadata;
      await bed.kube.delete(claims, { namespace, name });
      const areGone = async (): Promise<boolean> =>
        (await bed.kube.list(volumes)).items.length === 0 && bed.driver.volumes().length === 0;
      await until(areGone, 'volume and PV are gone');
      await bed.close();
    });
});
