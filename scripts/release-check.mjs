/* npm run release:check [-- FILE …]: runs the steps of .github/workflows on this machine, each job
 * in a clone of its own, with nothing that is not committed; with arguments, only those workflows.
 * Of actions it imitates checkout, upload-artifact and download-artifact; others are only printed.
 * $DRY (what publishes) and $SLOW (what takes minutes) print their command. A step is skipped if
 * one of its programs is not on PATH, or is in --without docker,buildah. */
import { spawnSync } from 'node:child_process';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { parse } from 'yaml';
import { fail, onPath, outputOf, readAddress, root } from './setup.mjs';

/** Programs that a machine may lack. */
const PROGRAMS = ['docker', 'buildah', 'helm', 'go'];

const { values, positionals } = parseArgs({
  options: { without: { type: 'string', default: '' } },
  allowPositionals: true,
});
const workflows = join(root, '.github', 'workflows');
const all = readdirSync(workflows);
const files = positionals.length > 0 ? positionals : all;
const leftOut = values.without.split(',').filter((program) => program !== '');
refuseUnknown(files, all);
refuseUnknown(leftOut, PROGRAMS);
const missing = PROGRAMS.filter((program) => leftOut.includes(program) || !onPath(program));
const folder = mkdtempSync(join(tmpdir(), 'sutler-release-'));
process.on('exit', () => rmSync(folder, { recursive: true }));
const print = (line) => process.stderr.write(`${line}\n`);
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const { name } = readAddress();

/** What GitHub sets. The tag is looked at by a step of ci.yml, since this version may have none. */
const PUSH = {
  GITHUB_REPOSITORY: name,
  GITHUB_REF_TYPE: 'branch',
  GITHUB_REF_NAME: `v${version}`,
  GITHUB_RUN_NUMBER: '1',
};
/** What jobs have uploaded, by name: which job, and where it is. */
const artifacts = new Map();
const DIGEST = `sha256:${'0'.repeat(64)}`;
/** Values of expressions in the environment of a step; of a matrix the first. */
const CONTEXT = {
  'github.token': '',
  'github.repository': name,
  'vars.CONTROL_PLANE': 'https://control-plane.example/control-plane.tar.gz',
  'vars.CONTROL_PLANE_SHA256': '0'.repeat(64),
  'steps.build.outputs.digest': DIGEST,
  'needs.image.outputs.image': `ghcr.io/${name}:${version}@${DIGEST}`,
};

function refuseUnknown(given, choices) {
  const unknown = given.find((each) => !choices.includes(each));
  if (unknown !== undefined) fail(`there is no ${unknown}: choose from ${choices.join(', ')}`);
}

function valueOf(where, text, matrix) {
  return String(text).replace(/\$\{\{ (.*?) \}\}/g, (_, expression) => {
    const value = CONTEXT[expression] ?? matrix[expression.replace('matrix.', '')]?.[0];
    if (value === undefined) fail(`${where}: scripts/release-check.mjs has no ${expression}`);
    return value;
  });
}

/** Runs the command of a step, as GitHub's shell does. */
function runCommand(where, step, job) {
  const lacks = missing.filter((program) => new RegExp(`\\b${program}\\b`).test(step.run));
  if (lacks.length > 0) return print(`${where}: not run, without ${lacks.join(', ')}`);
  const stored = readFileSync(job.env, 'utf8')
    .split('\n')
    .filter((line) => line !== '');
  const own = Object.entries({ ...job.definition.env, ...step.env });
  const matrix = job.definition.strategy?.matrix ?? {};
  const dry = `${process.execPath} ${join(root, 'scripts', 'dry-step.mjs')}`;
  print(`${where}: ${step.name ?? step.run.trim()}`);
  const { status } = spawnSync('bash', ['-eo', 'pipefail', '-c', step.run], {
    cwd: job.folder,
    stdio: ['ignore', 2, 2],
    env: {
      ...process.env,
      ...PUSH,
      GITHUB_ENV: job.env,
      ...Object.fromEntries(stored.map((line) => line.split(/=(.*)/s).slice(0, 2))),
      ...Object.fromEntries(own.map(([key, text]) => [key, valueOf(where, text, matrix)])),
      DRY: dry,
      SLOW: dry,
    },
  });
  if (status !== 0) fail(`${where}: the step failed with status ${status}: see any output above`);
}

/** Imitates the actions that bring files to a job, or hand them on. */
function runAction(where, { uses, with: inputs }, job) {
  const [action] = uses.split('@');
  const here = () => join(job.folder, inputs.path);
  if (action === 'actions/checkout') outputOf('git', 'clone', '--quiet', root, job.folder);
  else if (action === 'actions/upload-artifact') artifacts.set(inputs.name, { job: job.id, here });
  else if (action === 'actions/download-artifact') {
    const stored = artifacts.get(inputs.name);
    if (!job.needs.includes(stored?.job))
      fail(`${where}: there is no ${inputs.name}: the job has to need one that uploads it`);
    cpSync(stored.here(), here(), { recursive: true });
  } else print(`${where}: not run, ${action}`);
}

function runJob(file, id, definition) {
  if (definition.steps === undefined) return print(`${file} ${id}: is ${definition.uses}`);
  const needs = [definition.needs ?? []].flat();
  const env = join(folder, 'env');
  const job = { id, needs, definition, folder: join(folder, `${file}-${id}`), env };
  mkdirSync(job.folder);
  writeFileSync(env, '');
  for (const [index, step] of definition.steps.entries()) {
    const where = `${file} ${id} ${index + 1}`;
    if (step.run === undefined) runAction(where, step, job);
    else runCommand(where, step, job);
  }
}

const changed = outputOf('git', 'status', '--porcelain');
if (changed !== '') print(`Not committed, and so not looked at:\n${changed}`);
for (const file of files) {
  const { jobs } = parse(readFileSync(join(workflows, file), 'utf8'));
  for (const [id, definition] of Object.entries(jobs)) runJob(file, id, definition);
}
print(`Every step of ${files.join(', ')} that runs on this machine passed.`);
