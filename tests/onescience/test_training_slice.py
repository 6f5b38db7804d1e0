"""How training scripts are taken apart: the miniature project's script in the forms that users' scripts have, and what becomes of each.

SHARDWRIGHT_BINARY names the program; nothing is run. check_training.py runs the script as it is, against its original.
"""
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = os.environ.get("SHARDWRIGHT_BINARY", str(ROOT / "build/bin/shardwright"))
SCRIPT = "examples/earth/wind/train.py"
GENERATED = "examples/earth/wind_distributed_4stage"
CALL = "out_surface, out_aloft = model(invar)"
LOADER = 'DataLoader(train_dataset, batch_size=cfg["datapipe"]["batch_size"], shuffle=False, drop_last=True)'
OPTIMIZER = 'torch.optim.AdamW(model.parameters(), lr=cfg["training"]["lr"], weight_decay=cfg["training"]["weight_decay"])'
BEFORE = "    train_dataset = WindDataset("


class Slices(unittest.TestCase):
    def convert(self, *changes):
        """train.py, README.md and run.sh of the script with (old, new) texts changed; the program's output."""
        folder = Path(tempfile.mkdtemp(prefix="shardwright-"))
        self.addCleanup(shutil.rmtree, folder)
        project = folder / "project"
        shutil.copytree(ROOT / "testdata/weather_project", project)
        text = (project / SCRIPT).read_text()
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new)
        compile(text, "train.py", "exec")
        (project / SCRIPT).write_text(text)
        run = subprocess.run([BINARY, "convert", project / "wind.yaml", "-o", project], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        train, readme, script = ((project / GENERATED / name).read_text() for name in ("train.py", "README.md", "run.sh"))
        compile(train, "train.py", "exec")
        return train, readme, script, run.stdout

    def refused(self, why, *changes):
        """The data set and loss cannot be taken over: said in the README, in the output, and train.py runs on random data."""
        train, readme, _, output = self.convert(*changes)
        for text in (readme, output):
            self.assertRegex(text, why)
        self.assertIn("class RandomSamples", train)

    def test_names_of_ours_make_way(self):
        train, *_ = self.convert(("def load_config(path):", "def loss_func(a, b):\n    return (a - b).abs().mean()\n\n\ndef load_config(path):"),
                                 ("loss_aloft = criterion(out_aloft", "loss_aloft = loss_func(out_aloft"))
        self.assertIn("def loss_func(a, b):", train)
        self.assertIn("def parallel_loss_func(", train)

    def test_a_label_called_output(self):
        train, *_ = self.convert(("target_surface, target_aloft", "output, target_aloft"), ("out_surface, target_surface", "out_surface, output"))
        self.assertIn("def loss_func(parallel_output, output, target_aloft)", train)

    def test_arguments_by_keyword(self):
        train, *_ = self.convert((CALL, "out_surface, out_aloft = model(x=invar)"))
        self.assertIn("return (), dict(x=invar), dict(", train)

    def test_order_of_the_loader(self):
        for written, kind in (("shuffle=False, drop_last=True)", "single"), ("drop_last=True)", "single"), ("shuffle=True)", None)):
            train, _, script, _ = self.convert(("shuffle=False, drop_last=True)", written))
            self.assertEqual("--dataloader-type single" in script, kind == "single", written)
            self.assertEqual("at_least=n" in train, kind == "single")
        _, readme, *_ = self.convert(("shuffle=False, drop_last=True)", 'shuffle=cfg["datapipe"].get("shuffle"))'))
        self.assertIn("whether the loader shuffles cannot be told", readme)

    def test_arguments_of_the_optimizer_by_place(self):
        _, readme, script, _ = self.convert((OPTIMIZER, "torch.optim.AdamW(model.parameters(), 2e-3, (0.8, 0.9), 1e-4, 0.1, True)"))
        for argument in ("--lr 2e-3", "--adam-beta1 0.8", "--adam-beta2 0.9", "--adam-eps 1e-4", "--weight-decay 0.1"):
            self.assertIn(argument, script)
        self.assertIn("amsgrad", readme)

    def test_sgd(self):
        _, readme, script, _ = self.convert((OPTIMIZER, "torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)"))
        self.assertIn("--sgd-momentum 0.9", script)
        self.assertIn("nesterov", readme)

    def test_a_rate_that_changes_is_not_known(self):
        _, readme, script, _ = self.convert((BEFORE, "    rate = 1e-3\n    rate *= 2\n" + BEFORE), (OPTIMIZER, "torch.optim.AdamW(model.parameters(), lr=rate)"))
        self.assertNotIn("--lr 1e-3", script)
        self.assertIn("give --lr", readme)

    def test_values_of_classes_and_command_lines(self):
        parser = ('    parser = argparse.ArgumentParser()\n    parser.add_argument("--lr", type=float, default=3e-3)\n    args = parser.parse_args()\n')
        train, readme, script, _ = self.convert(("import logging", "import argparse\nimport logging"), (BEFORE, parser + BEFORE),
                                                (OPTIMIZER, "torch.optim.AdamW(model.parameters(), lr=args.lr)"),
                                                ("+ loss_aloft\n", "+ args.lr * loss_aloft\n"))
        self.assertIn("--lr 3e-3", script)
        self.assertIn("parser.parse_args([])", train)
        self.assertIn("command-line arguments", readme)
        _, _, script, _ = self.convert(("def load_config(path):", "class Settings:\n    lr: float = 4e-3\n\n\ndef load_config(path):"),
                                       (BEFORE, "    settings = Settings()\n" + BEFORE), (OPTIMIZER, "torch.optim.AdamW(model.parameters(), lr=settings.lr)"))
        self.assertIn("--lr 4e-3", script)

    def test_a_seed_is_the_script_s_not_a_generator_s(self):
        _, _, script, _ = self.convert((BEFORE, "    split = torch.Generator().manual_seed(3)\n" + BEFORE))
        self.assertIn("--seed 7", script)

    def test_accumulated_gradients(self):
        _, _, script, _ = self.convert(("loss.backward()", "loss = loss / 4\n            loss.backward()"),
                                       ("            optimizer.step()", "            if (step + 1) % 4 == 0:\n                optimizer.step()"))
        self.assertIn("--global-batch-size 8", script)

    def test_a_loss_of_its_own_call(self):
        train, *_ = self.convert(("loss.backward()", "criterion(loss, loss * 0).backward()"))
        self.assertIn("value = criterion(loss, loss * 0)", train)

    def test_counters_of_the_loops(self):
        train, *_ = self.convert(("+ loss_aloft\n", "+ loss_aloft * (1 + 0.1 * epoch) + 0 * step\n"))
        self.assertRegex(train, r"epoch = position // max\(steps_per_epoch\(\)")
        self.assertRegex(train, r"step = position % max\(steps_per_epoch\(\)")

    def test_names_carried_from_batch_to_batch(self):
        train, *_ = self.convert(("            target_surface,", "            masks = masks.to(invar.device)\n            target_surface,"))
        self.assertIn("    global masks\n", train)
        self.refused("for the next batch", ("            optimizer.zero_grad()", "            masks = masks * 0.9\n            optimizer.zero_grad()"))

    def test_a_loop_in_a_function(self):
        text = (ROOT / "testdata/weather_project" / SCRIPT).read_text()
        loop = text[text.index("        for step, data in enumerate(train_loader):"):text.index("        model.eval()")]
        body = re.sub("(?m)^    ", "", loop).replace("train_loader", "loader").replace("optimizer", "opt")
        function = "def train_one_epoch(net, loader, opt, criterion, masks, cfg, device, dtype, epoch):\n" + body.replace("model", "net").replace('cfg["net"]', 'cfg["model"]')
        train, readme, script, _ = self.convert((loop, "        train_one_epoch(model, train_loader, optimizer, criterion, masks, cfg, device, dtype, epoch)\n"),
                                                ("def main():", function + "\n\ndef main():"))
        self.assertIn("def prepare(data):", train)
        self.assertIn("data_sets()", train)
        self.assertIn("--micro-batch-size 2", script)
        self.assertNotIn("train_one_epoch", readme)

    def test_statements_of_the_main_guard_are_listed(self):
        _, readme, *_ = self.convert(('if __name__ == "__main__":\n', 'if __name__ == "__main__":\n    torch.set_num_threads(1)\n'))
        self.assertIn("torch.set_num_threads(1)", readme)

    def test_other_steps_are_listed(self):
        _, readme, *_ = self.convert(("            optimizer.step()", "            optimizer.step()\n            average.step(model)"), ("    best = float", "    average = nn.Module()\n    best = float"))
        self.assertIn("average.step(model)", readme)

    def test_what_loops_and_conditions_change(self):
        train, *_ = self.convert(("            loss = cfg", "            losses = []\n            for o, t in ((out_surface, target_surface), (out_aloft, target_aloft)):\n                losses.append(criterion(o, t))\n            loss = sum(losses) * cfg"),
                                 ("            target_surface,", '            if cfg["training"]["seed"] == 7:\n                invar.clamp_(-5, 5)\n            target_surface,'))
        self.assertIn("losses.append(criterion(o, t))", train)
        self.assertIn("invar.clamp_(-5, 5)", train)

    def test_a_default_before_a_loop_that_may_not_run(self):
        train, *_ = self.convert((BEFORE, '    scale = 1.0\n    for name in cfg.get("extra", []):\n        scale = 2.0\n' + BEFORE), ("+ loss_aloft\n", "+ scale * loss_aloft\n"))
        self.assertIn("scale = 1.0\n    for name in", train)

    def test_definitions_and_imports_inside_of_the_function(self):
        train, *_ = self.convert((BEFORE, "    from torch.nn import functional as F\n\n    def weighted(a, b):\n        return 2 * F.l1_loss(a, b)\n\n" + BEFORE),
                                 ("loss_aloft = criterion(", "loss_aloft = weighted("), ("import h5py\n", "try:\n    import h5py\nexcept ImportError:\n    h5py = None\n"))
        for text in ("global F,", "from torch.nn import functional as F", "def weighted(a, b):", "try:\n    import h5py"):
            self.assertIn(text, train)

    def test_values_that_the_script_changes(self):
        _, readme, script, _ = self.convert((BEFORE, '    cfg["training"]["lr"] *= 2\n' + BEFORE))
        self.assertNotIn("--lr 2.0e-3", script)
        self.assertIn("give --lr", readme)

    def test_epochs(self):
        for loop, epochs in (("range(int(1e2))", 100), ("range(0, 100, 10)", 10), ("range(1, 4)", 3)):
            train, *_ = self.convert(('range(cfg["training"]["max_epoch"])', loop))
            self.assertIn(f'["train_iters"] = {epochs} * steps_per_epoch()', train)

    def test_models_that_are_made_anew_are_listed(self):
        _, readme, *_ = self.convert(("    criterion = nn.L1Loss()", "    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)\n    criterion = nn.L1Loss()"))
        self.assertIn("convert_sync_batchnorm(model)", readme)

    def test_what_is_done_anew_every_epoch(self):
        self.refused("anew every epoch", ("        model.train()\n", "        masks = masks * 0.9\n        model.train()\n"))
        self.refused("anew every epoch", ("        model.train()\n", "        noise = torch.randn(4, 16, 32)\n        model.train()\n"), ("+ loss_aloft\n", "+ loss_aloft + noise.mean()\n"))

    def test_a_condition_on_backward(self):
        self.refused("under a condition", ("            loss.backward()", "            if torch.isfinite(loss):\n                loss = loss * 2\n                loss.backward()"))

    def test_what_cannot_be_taken_apart(self):
        self.refused("more than once", (CALL + "\n            loss", CALL + "\n            again = model(invar)[0]\n            loss"), ("+ loss_aloft\n", "+ loss_aloft + again.mean()\n"))
        self.refused("backward\\(\\) is called more than once", ("loss.backward()", "loss_aloft.backward(retain_graph=True)\n            loss.backward()"))
        self.refused("leaves the loop", ("            target_surface,", "            if invar.isnan().any():\n                invar = invar * 0\n                continue\n            target_surface,"))
        self.refused("reads the model itself", ("+ loss_aloft\n", "+ loss_aloft + sum(p.sum() for p in model.parameters())\n"))

    def test_data_ranks(self):
        folder = Path(tempfile.mkdtemp(prefix="shardwright-"))
        self.addCleanup(shutil.rmtree, folder)
        shutil.copytree(ROOT / "testdata/weather_project", folder, dirs_exist_ok=True)
        job = (folder / "wind.yaml").read_text()
        self.assertIn("script:", job)
        (folder / "wind.yaml").write_text(re.sub(r"train: \{script: (.*)\}", r"train: {script: \1, data_ranks: needed}", job))
        run = subprocess.run([BINARY, "convert", folder / "wind.yaml", "-o", folder], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("bool(stage.needs_inputs)", (folder / GENERATED / "train.py").read_text())
        (folder / "wind.yaml").write_text(re.sub(r"train: \{script: (.*)\}", r"train: {script: \1, data_ranks: first}", job))
        run = subprocess.run([BINARY, "convert", folder / "wind.yaml", "-o", folder], capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        self.assertIn("expected all", run.stderr)


if __name__ == "__main__":
    unittest.main()
